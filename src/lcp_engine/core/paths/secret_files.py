"""Tell by a path whether a file holds secrets or belongs to git or the engine. Pure.

All functions take a casefolded path with "/". Names come from what the tools themselves write and from the lists of
gitrob, gitleaks and GitHub's gitignore templates; docs/missions.md says what is covered and what is not.
"""

from __future__ import annotations

import re


def is_secret(folded: str) -> bool:
    """True if the name of a file, or the directory it is in, is one that secrets have."""
    return not is_source(folded) and _PUBLIC.search(folded) is None and _is_secret(folded)


def is_source(folded: str) -> bool:
    """True if the path is one as most files of a project have it: none of a secret, and quick to tell."""
    return _SOURCE.fullmatch(folded) is not None and "keychains" not in folded


def _is_secret(folded: str) -> bool:
    place = _seen(folded)
    if _DIRECTORY.search(place) or _ALWAYS.search(folded) or (place != folded and _ALWAYS.search(place)):
        return True
    directory, _, name = place.rpartition("/")
    name = _without_marks(name)
    if _BACKED_UP.fullmatch(name):
        return True
    return _EXAMPLE.search(name) is None and bool(
        _NAME.fullmatch(name) or _PLACE.search(f"{directory}/{name}")
    )


def is_git_secret(folded: str) -> bool:
    """True if the file is a configuration of a repository, which may contain tokens: also of a bare one."""
    if "config" not in folded:
        return False
    directory, _, name = folded.rpartition("/")
    return _GIT_CONFIG.search(f"{directory}/{_without_marks(name)}") is not None


def is_git_file(folded: str) -> bool:
    """True if git takes a part of the path for `.git`, `.gitmodules` or a bare repository, on any file system."""
    if folded.isascii() and "git" not in folded and "gi7eba" not in folded:
        return False
    return any(_GIT_NAME.fullmatch(part) for part in _UNSEEN.sub("", folded).split("/")) or bool(
        _BARE.search(folded)
    )


def is_engine_file(folded: str) -> bool:
    """True if the file has a name of the engine's own, such as a temporary file of a replacement."""
    return ".lcp" in folded and _ENGINE_FILE.search(folded) is not None


_SOURCE = re.compile(
    r"(?:\.?venv/lib/python3\.[0-9]+/)?(?:@?[a-z0-9_-]+/)*(?!id_|secring)[a-z0-9_-]+"
    r"(?:\.d|\.cpython-[0-9]+)?"
    r"\.(?:py[ic]?|[cm]?[jt]sx?|[ch]|cc|[ch]pp|go|rs|java|kt|swift|cs|scala|lua|pl|r|sh|sql|vue|md|rst|html?|s?css)"
)
"""No pattern below matches such a path."""
_DIRECTORY = re.compile(
    r"""(?:^|/)(?:
        \.ssh | \.aws | \.gnupg | \.kube | \.azure | \.oci | \.password-store | \.mozilla | \.thunderbird
      | \.config/(?:gcloud|google-chrome|chromium|op|rclone) | \.local/share/keyrings | \.subversion/auth
      | library/keychains | \.huggingface | \.kaggle | \.snowsql | \.dbeaver4?
      | \.filezilla | \.config/filezilla
    )(?:~|[-_. ]?(?:bak|backup|old|orig|save|saved|copy|te?mp|[0-9]{1,8}))*(?:/|$)""",
    re.VERBOSE,
)
"""With the copies that people make of a directory: `.kube.bak`, `.ssh-old`, `.aws~`."""
_ALWAYS = re.compile(
    r"""(?:^|/)(?:
        \.docker/config\.json
      | \.env(?:rc)? | \.env\.(?!(?:example|sample)$)[^/]*
      | [^/]*\.(?:pem|key|p12)
      | id_[^/.]+ | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?\.(?!pub$)[^/]*
      | [._](?:netrc|authinfo)(?:\.gpg)? | \.npmrc | \.pypirc | \.git-credentials
    )$""",
    re.VERBOSE | re.DOTALL,
)
_PUBLIC = re.compile(
    r"(?:^|/)(?:(?:site|dist)-packages|node_modules|vendor)/(?:[@\w][\w.-]*/)+(?:cacert|roots)\.pem\Z"
)
"""Certificates of public authorities, with which packages such as certifi come: without them, others do not load."""
_BACKED_UP = re.compile(
    r"""\.env(?:rc)? | .*\.(?:pem|key|p12) | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?
      | [._](?:netrc|authinfo)(?:\.gpg)? | \.npmrc | \.pypirc | \.git-credentials""",
    re.VERBOSE | re.DOTALL,
)
"""Of these, backups and copies are secrets, too; "id_map.old" is none."""
_NAME = re.compile(
    r"""
        .*\.env | \.env[-_].*                                                  # prod.env, .env-prod
      | .*\.(?:pfx|pkcs12|p8|pk8|pvk|ppk|jks|jceks|bks|keystore|keytab|kdbx?|psafe3|agilekeychain|keychain(?:-db)?)
      | .*\.(?:kwallet|ovpn|tfvars|tfvars\.json|kubeconfig|kube-?config)
      | .*\.tfstate(?:\..*)? | \.terraformrc | terraform\.rc | credentials\.tfrc\.json
      | .*[-_.](?:rsa|dsa|ecdsa|ed25519) | ssh_host_.*_key | secring\..* | wg[0-9]+\.conf
      | \.?pgpass(?:\.conf)? | \.my\.cnf | \.mylogin\.cnf | \.?htpasswd | \.htdigest | netrc
      | kubeconfig(?:[-_][^.]*)?(?:\.(?:ya?ml|json|conf|txt))?
      | \.dockercfg | \.dockerconfigjson | \.vault-token | \.?vault[-_]pass(?:word)?(?:\.txt)?
      | \.boto | \.s3cfg | \.databrickscfg | \.sentryclirc | \.clasprc\.json | rclone\.conf | \.smbcredentials
      | \.cifscredentials | \.bearer | \.token | \.passwd(?:-s3fs)?
      | credentials | (?:.*[-_.])?credentials\.(?:json|db|xml|ya?ml|toml|ini|cfg|conf|properties|csv|env)
      | (?:.*[-_.])?service[-_.]?account(?:[-_.].*)?\.json | (?:.*[-_.])?client[-_]secrets?(?:[-_.].*)?\.json
      | application_default_credentials\.json | adc\.json | .*firebase-adminsdk.*\.json
      | (?:.*[-_.])?secrets\.(?:json|ya?ml|toml|ini|cfg|conf|properties|env)
      | \.secrets? | secret_token\.rb | master\.key | key[34]\.db | logins\.json
      | \.renviron(?:\.site)? | renviron\.site | \.ftpconfig | \.?sftp-config(?:-alt)?\.json | \.remote-sync\.json
      | \.ftpsync | \.dev\.vars(?:\..*)? | local\.settings\.json | wp-config(?:-local)?\.php | localsettings\.php
      | oauth_creds\.json | kaggle\.json | \.cvspass | \.msmtprc | \.fetchmailrc | \.esmtprc
      | \.tugboat | \.p4tickets | \.?dbeaver-data-sources\.xml | filezilla\.xml | sitemanager\.xml | recentservers\.xml
      | \.(?:netrc|authinfo)[-_.].* | authinfo(?:\.gpg)? | pip\.(?:conf|ini) | \.npmrc[-_.].* | \.yarnrc(?:\.ya?ml)?
      | \.condarc | \.wgetrc | [._]curlrc | \.credentials
      | \.(?:bash|zsh|sh|fish|psql|mysql|sqlite|python|irb|rediscli|node_repl)_history
    """,
    re.VERBOSE | re.DOTALL,
)
_PLACE = re.compile(
    r"""(?:^|/)(?:
        \.docker/config\.json | \.?config/gh/hosts\.ya?ml | \.?config/(?:hub|doctl/config\.ya?ml|git/credentials)
      | \.cargo/credentials[^/]* | \.gem/credentials[^/]* | \.m2/settings(?:-security)?\.xml
      | \.gradle/gradle\.properties | etc/(?:g?shadow-?|sudoers) | \.fly/config\.ya?ml
      | \.cache/huggingface/(?:stored_)?tokens? | \.idea/(?:datasources(?:\.local)?|webservers|deployment)\.xml
      | \.vscode/(?:sftp|ftp-sync)\.json | \.mc/config\.json | \.vnc/passwd | \.bundle/config
      | \.netlify/config\.json | \.jupyter/jupyter_[^/]*_config\.json | pypoetry/auth\.toml
      | github-copilot/(?:apps|hosts)\.json | glab-cli/config\.ya?ml | \.config/stripe/config\.toml
      | \.?nuget/nuget\.config | \.wrangler/config/default\.toml | \.railway/config\.json
    )$
    | ^(?!(?:.*/)?(?:locales?|lang|languages?|i18n|l10n|intl|messages|translations?|schemas?|fixtures|__mocks__)/
          (?:[\w-]+/){0,2}auth\.json$).*/auth\.json$""",
    re.VERBOSE | re.DOTALL,
)
"""With the tokens of composer, codex, opencode, podman: an `auth.json` that is no translation, schema or fixture."""
_EXAMPLE = re.compile(r"(?:^|[-_.])(?:example|sample|template|tmpl|dist)(?:[-_.]|$)")
"""Part of a name that says that the file is there to be copied and filled in."""

_MARKS = re.compile(
    r"""(?:
        ~ | [#] | \.(?:bak|backup|old|orig|save|saved|sw[a-p]|te?mp|copy|lock|rej|dpkg-\w+|rpmsave|rpmnew|[0-9]{1,4})
      | \.(?:gz|bz2|xz|zst|zip|tgz|txt|b64|base64) | [-_](?:bak|backup|old|orig|copy) | [ ]?\([0-9]+\)
      | [ ]-[ ]copy | [ ]copy
    )+$""",
    re.VERBOSE,
)
_COPY_NUMBER = re.compile(r" ?\([0-9]+\)(?=\.)")
_DROPPED = re.compile(r"(?::[^/]*|[. ]+)(?=/|$)")
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def _seen(folded: str) -> str:
    """The path as HFS+ and NTFS take it: without characters they do not see, and ends of names that they drop."""
    seen = folded if folded.isascii() else _UNSEEN.sub("", folded)
    if ":" in seen or ". " in f"{seen} " or " /" in f"{seen}/" or "./" in seen:
        return _DROPPED.sub("", seen)
    return seen


def _without_marks(name: str) -> str:
    """The name without what editors, package managers and people add to a copy: "~", ".bak", ".lock", " (1)"."""
    kept = _COPY_NUMBER.sub("", _MARKS.sub("", name))
    if kept != name and name.startswith((".#", "#")):
        kept = kept.lstrip("#").removeprefix(".#")
    if name.startswith(".") and kept != name and re.search(r"\.sw[a-p]$", name):
        kept = kept if kept.startswith((".env", ".netrc")) else kept[1:]
    return kept or name


_ENGINE_FILE = re.compile(r"(?:^|/)\.lcp(?:/|$|-[^/]*\.tmp$)")
# Submodules and linked worktrees have a config of their own.
_GIT_CONFIG = re.compile(
    r"(?:^|/)(?:\.git/(?:.*/)?|[^/]+\.git/(?:(?:modules|worktrees)/(?:.*/)?)?)config(?:\.worktree)?$",
    re.DOTALL,
)
_BARE = re.compile(
    r"(?:^|/)[^/]+\.git/(?:config|hooks|head|objects|refs|info|index|logs|modules|packed-refs|worktrees)(?:[/.~]|$)",
    re.DOTALL,
)
# NTFS: short names, streams after ":", dots and spaces at the end. HFS+: characters that it does not see. From git's
# verify_path: a checkout of what was written here must not become a repository elsewhere.
_GIT_NAME = re.compile(
    r"(?:\.git|git~[0-9]+|\.gitmodules|gitmod~[0-9]+|gi7eba~[0-9]+)[ .]*(?::.*)?", re.DOTALL
)
