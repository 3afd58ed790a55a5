"""What is said of the wall: before a command, and of one that failed for its reasons."""

from __future__ import annotations

from tests.tables import table

from lcp_engine.core.programs.walls import Step
from lcp_engine.features.programs.wall_words import named_as_walls, said_of_commands


@table(
    ("code", "said", "named"),
    [
        (1, "OSError: [Errno 101] Network is unreachable", "Network is unreachable"),
        (1, "curl: (6) Could not resolve host: example.org", "Could not resolve host"),
        (1, "npm error code EAI_AGAIN", "EAI_AGAIN"),
        (
            1,
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            "Temporary failure in name resolution",
        ),
        (1, "dial tcp: lookup proxy.example: no such host", "no such host"),
        (1, "psycopg.OperationalError: connection refused", "connection refused"),
        (1, "dial tcp 192.0.2.1:80: connect: network is unreachable", "network is unreachable"),
        (1, "chown a: operation not permitted", "operation not permitted"),
        (1, "rename a b: invalid cross-device link", "invalid cross-device link"),
        (1, "mkdir /x: read-only file system", "mkdir /x: read-only file system"),
        (
            1,
            'exec: "dot": executable file not found in $PATH',
            'exec: "dot": executable file not found in $PATH',
        ),
        (1, "chown: changing ownership of 'a': Operation not permitted", "Operation not permitted"),
        (1, "OSError: [Errno 18] Invalid cross-device link: 'a' -> 'b'", "Invalid cross-device link"),
        (
            1,
            "==8==LeakSanitizer has encountered a fatal error.",
            "LeakSanitizer has encountered a fatal error",
        ),
        (
            1,
            "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted",
            "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted",
        ),
        (
            0,
            "warning: ptrace: Operation not permitted",
            "warning: ptrace: Operation not permitted",
        ),
        (7, "curl: (7) Failed to connect: Couldn't connect to server", "Couldn't connect to server"),
        (153, "File size limit exceeded", "File size limit exceeded"),
        (1, "OSError: [Errno 27] File too large", "File too large"),
        (
            128,
            "fatal: Unable to create '/w/.git/index.lock': Read-only file system",
            "fatal: Unable to create '/w/.git/index.lock': Read-only file system",
        ),
        (0, "State Recv-Q Send-Q Local Address:Port Peer Address:PortProcess\n", "no sockets are listed"),
        (
            1,
            "objects: openError: a.bin (dfad) could not be checked: no such file or directory\nobjects: repair",
            "objects: openError: a.bin (dfad) could not be checked",
        ),
        (
            2,
            "Failed to run `git update-index`: error running /usr/lib/git-core/git: '' 'exit status 128'",
            "Failed to run `git update-index`",
        ),
        (1, "cp: '/usr/x': Read-only file system", "cp: '/usr/x': Read-only file system"),
        (126, "sh: 1: ./run: Permission denied", "sh: 1: ./run: Permission denied"),
        (
            126,
            "bash: ./run: /opt/py/bin/python: bad interpreter: No such file",
            "bad interpreter: No such file",
        ),
        (127, "sh: 1: nosuchprog: not found", "nosuchprog: not found"),
        (127, "env: 'ruby': No such file or directory", "env: 'ruby': No such file or directory"),
        (1, "Error: spawn dot ENOENT", "spawn dot ENOENT"),
    ],
)
def test_a_failure_for_reasons_of_the_wall_is_named(code: int, said: str, named: str) -> None:
    for streams in ((said, ""), ("", said)):
        [sentence] = named_as_walls(*streams, code)
        assert sentence.startswith(f"{named}: ")
        assert "the wall's" in sentence
        assert sentence.endswith("(docs/commands.md)")


@table(
    ("step", "said", "why"),
    [
        (Step.OVERLAY, "listen tcp: operation not permitted", "devices"),
        (Step.LANDLOCK, "listen tcp: operation not permitted", "not even 127.0.0.1"),
        (Step.OVERLAY, "fatal: not a git repository: /w/a/../.git/modules/a", "of submodules"),
        (Step.COPY, "fatal: not a git repository", "without .git"),
        (Step.LANDLOCK, "fatal: not a git repository", "without .git"),
        (Step.LANDLOCK, "ModuleNotFoundError: No module named 'tally'", "editable installs"),
        (Step.LANDLOCK, "Error: Cannot find module '@w/tally'", "links"),
        (Step.LANDLOCK, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'tally'", "links"),
    ],
)
def test_a_reason_is_that_of_the_wall_which_holds(step: Step, said: str, why: str) -> None:
    [sentence] = named_as_walls("", said, 1, step=step)
    assert "the wall's" in sentence
    assert why in sentence


@table(
    ("step", "said"),
    [
        (Step.OVERLAY, "fatal: not a git repository"),
        (Step.COPY, "ModuleNotFoundError: No module named 'tally'"),
        (Step.LANDLOCK, "Error: Cannot find module './dist/main'"),
        (Step.COPY, "Invalid cross-device link"),
        (Step.LANDLOCK, "State Recv-Q Send-Q Local Address:Port"),
        (Step.OVERLAY, "State Recv-Q Send-Q Local Address:Port\nLISTEN 0 5 127.0.0.1:8000 0.0.0.0:*"),
    ],
)
def test_a_failure_that_a_wall_does_not_cause_is_not_named_as_its(step: Step, said: str) -> None:
    assert named_as_walls("", said, 1, step=step) == ()


@table(
    ("code", "said"),
    [
        (0, "Network is unreachable"),
        (1, "AssertionError: 1 != 2"),
        (1, "sh: 1: ./run: Permission denied"),
        (2, "FileNotFoundError: [Errno 2] No such file or directory: 'data.json'"),
    ],
)
def test_other_failures_are_the_programs(code: int, said: str) -> None:
    assert named_as_walls(said, "", code) == ()


def test_with_a_network_its_failures_are_not_the_walls() -> None:
    assert named_as_walls("", "Network is unreachable", 1, network=True) == ()


def test_a_masked_file_that_a_line_misses_is_named() -> None:
    said = "cat: config/.env: No such file or directory\nopen my.env: ENOENT\nread key.pem\n"
    [sentence] = named_as_walls(said, "", 1, masked=["config/.env", "certs/key.pem", "other/.env.local"])
    assert sentence.startswith("config/.env: the wall's, not the program's")


@table(
    "said",
    [
        "Could not open file or uri for loading certificate from certs/client.pem",
        "OSError: Could not find the TLS certificate file, invalid path: certs/client.pem",
        "Error loading file certs/client.pem",
        "open certs/client.pem: no such file or directory",
        "ERROR: Failed to open cert certs/client.pem: (-64).",
        "Unable to load client key -8.: client.pem",
    ],
)
def test_a_masked_file_is_named_however_a_program_says_that_it_is_missing(said: str) -> None:
    [sentence] = named_as_walls(said, "", 1, masked=["certs/client.pem"])
    assert sentence.startswith("certs/client.pem: the wall's, not the program's")


def test_masked_certificates_are_perhaps_those_that_python_misses_without_a_name() -> None:
    said = "    context.load_cert_chain(own)\nFileNotFoundError: [Errno 2] No such file or directory\n"
    [sentence] = named_as_walls("", said, 1, masked=["a.pem", ".env"])
    assert sentence.startswith("a.pem: perhaps the wall's")


def test_a_masked_directory_is_named_where_a_line_has_its_name_alone() -> None:
    masked = [".git/", "keys/.ssh/"]
    assert named_as_walls(".F.. not found", "", 1, masked=masked) == ()
    [sentence] = named_as_walls("cat: .git/HEAD: No such file or directory", "", 1, masked=masked)
    assert sentence.startswith(".git/: ")


def test_many_masked_files_are_named_five_at_most() -> None:
    names = [f"certs/{number}.pem" for number in range(50)]
    said = "".join(f"cannot open {name}\n" for name in names)
    assert len(named_as_walls(said, "", 1, masked=names)) == 5


def test_of_a_long_line_the_beginning_is_looked_at() -> None:
    assert named_as_walls(".git " * 200_000, "execve " * 100_000, 1, masked=["a.pem"]) == ()


def test_what_holds_for_commands_is_told() -> None:
    assert said_of_commands("drop") == (
        "Files that it changes are named in `changed` and not kept: change files with jobs of other kinds. "
        "It has no network but its own 127.0.0.1: nothing can be downloaded or installed."
    )
    assert said_of_commands("hold", ("pypi.org",)).endswith("It reaches pypi.org and no other host.")
    assert said_of_commands("stage", "host").endswith("It uses the network of this machine.")
