"""Small projects of several languages, each with a suite that uses what suites use."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TAP = re.compile(r"^ *(not ok|ok)\b(?: \d+)?(?: -)? ([^\n]+?)(?: # (?:SKIP|TODO)\b[^\n]*)?$", re.MULTILINE)
PYTEST = re.compile(r"^(\S+::\S+) ([A-Z]+)(?: +\[[^]]*\])?$", re.MULTILINE)
CARGO = re.compile(r"^test (\S.*?) \.\.\. (\w+)$", re.MULTILINE)
GO = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
CTEST = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.+ *(\**\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Project:
    """A project: its files, what makes it complete, the command of its suite, and how its tests are told apart."""

    name: str
    files: Mapping[str, str]
    command: Sequence[str]
    needs: Sequence[str]
    """Programs without which it cannot be made."""
    outcomes: Callable[[str], dict[str, str]]
    """The outcome of each test, from what the command writes."""
    complete: Callable[[Path], None] = lambda place: None
    environment: Mapping[str, str] = field(default_factory=dict)
    bug: tuple[str, str, str] | None = None
    """A file, what is right in it, and what makes tests fail in its place."""

    def make(self, place: Path, *, is_broken: bool = False) -> Path:
        """Write the project beneath a directory, as a directory of its name."""
        root = place / self.name
        for path, content in self.files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            if content.startswith("#!"):
                file.chmod(0o755)
        self.complete(root)
        if is_broken and self.bug is not None:
            path, right, wrong = self.bug
            text = (root / path).read_text()
            assert right in text
            (root / path).write_text(text.replace(right, wrong))
        return root

    @property
    def missing(self) -> str | None:
        """The first program that it needs and this machine does not have."""
        return next((name for name in self.needs if shutil.which(name) is None), None)


def tap(said: str) -> dict[str, str]:
    return {name: outcome for outcome, name in TAP.findall(said)}


def _by_name(pattern: re.Pattern[str], *, name_first: bool = True) -> Callable[[str], dict[str, str]]:
    def read(said: str) -> dict[str, str]:
        pairs = pattern.findall(said)
        return {str(a): str(b) for a, b in pairs} if name_first else {str(b): str(a) for a, b in pairs}

    return read


def _install_editable(root: Path) -> None:
    """A virtual environment with pytest, in which the project is installed in place, as `pip install -e` does it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    (packages,) = (root / ".venv" / "lib").glob("python*/site-packages")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        distribution = importlib.metadata.distribution(name)
        for top in {
            file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            source = Path(str(distribution.locate_file(top)))
            if source.is_dir():
                shutil.copytree(source, packages / top, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.is_file():
                shutil.copy(source, packages / top)
    (packages / "__editable__.tally.pth").write_text(f"{root.resolve() / 'src'}\n")
    program = root / ".venv" / "bin" / "pytest"
    program.write_text(
        f"#!{root.resolve()}/.venv/bin/python\nimport sys\n\nimport pytest\n\nsys.exit(pytest.main())\n"
    )
    program.chmod(0o755)


PYTHON = Project(
    name="python",
    files={
        "pyproject.toml": (
            "[project]\nname = 'tally'\nversion = '1'\n\n[tool.pytest.ini_options]\ntestpaths = ['tests']\n"
        ),
        "src/tally/__init__.py": '"""Count words."""\n',
        "src/tally/count.py": (
            "def count(text):\n"
            "    return {word: text.lower().split().count(word) for word in text.lower().split()}\n"
        ),
        "tests/test_count.py": (
            "from pathlib import Path\n\nimport tally\nfrom tally.count import count\n\n\n"
            "def test_case():\n    assert count('To be to') == {'to': 2, 'be': 1}\n\n\n"
            "def test_it_is_this_checkout():\n"
            "    assert Path(tally.__file__).parent.parent.parent == Path(__file__).parent.parent\n"
        ),
        "tests/test_system.py": """\
import os
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from threading import Thread


def test_a_server_on_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = Thread(target=lambda: server.accept()[0].sendall(b"hello"))
        answer.start()
        with socket.create_connection(server.getsockname()) as client:
            assert client.recv(5) == b"hello"
        answer.join()


def test_localhost_has_an_address():
    assert socket.gethostbyname("localhost") == "127.0.0.1"


def test_a_unix_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))


def test_a_pool_of_processes():
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]


def test_a_mode(tmp_path):
    (tmp_path / "a").write_text("")
    os.chmod(tmp_path / "a", 0o640)
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_the_mode_of_a_missing_file(tmp_path):
    try:
        os.chmod(tmp_path / "missing", 0o600)
    except FileNotFoundError:
        return
    raise AssertionError("it seemed to work")


def test_a_time(tmp_path):
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", (1, 2))
    assert os.stat(tmp_path / "a").st_mtime == 2


def test_a_hard_link(tmp_path):
    (tmp_path / "a").write_text("a")
    os.link(tmp_path / "a", tmp_path / "b")
    assert os.stat(tmp_path / "a").st_nlink == 2


def test_a_new_script_runs(tmp_path):
    script = tmp_path / "run"
    script.write_text(f"#!{sys.executable}\\nprint('ran')\\n")
    script.chmod(0o755)
    assert subprocess.run([script], capture_output=True, check=True).stdout == b"ran\\n"


def test_shared_memory():
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=16)
    memory.close()
    memory.unlink()


def test_a_fork_is_not_interrupted_by_children_that_end():
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.siginterrupt(signal.SIGCHLD, True)
    try:
        for _ in range(150):
            process = os.fork()
            if process == 0:
                os._exit(0)
            while ended() and os.waitpid(-1, os.WNOHANG)[0]:
                pass
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ended():
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def test_a_file_beside_the_tests():
    with open("made.txt", "w") as file:
        file.write("made")
    os.remove("made.txt")
""",
    },
    command=[".venv/bin/pytest", "-v", "-p", "no:cacheprovider"],
    needs=[],
    outcomes=_by_name(PYTEST),
    complete=_install_editable,
    bug=("src/tally/count.py", "text.lower().split()}", "text.split()}"),
)  # fmt: skip


def _link_workspaces(root: Path) -> None:
    """The links that `npm install` makes for workspaces."""
    (root / "node_modules").mkdir()
    for name in ("count", "report"):
        (root / "node_modules" / name).symlink_to(f"../packages/{name}")


def _package(name: str, **more: str) -> str:
    rest = "".join(f', "{key}": {value}' for key, value in more.items())
    return f'{{"name": "{name}", "version": "1.0.0"{rest}}}\n'


_NODE_TEST = '{"test": "node --test --test-reporter=tap"}'
NODE = Project(
    name="node",
    files={
        "package.json": _package("all", private="true", workspaces='["packages/*"]'),
        "packages/count/package.json": _package("count", main='"index.js"', scripts=_NODE_TEST),
        "packages/count/index.js": "exports.count = (text) => text.toLowerCase().split(/\\s+/).length;\n",
        "packages/count/count.test.js": (
            'const test = require("node:test");\nconst assert = require("node:assert");\n'
            'const {count} = require("./index.js");\n'
            'test("words are counted", () => assert.equal(count("to be to"), 3));\n'
        ),
        "packages/report/package.json": _package("report", dependencies='{"count": "1.0.0"}', scripts=_NODE_TEST),
        "packages/report/report.test.js": (
            'const test = require("node:test");\nconst assert = require("node:assert");\n'
            'const fs = require("node:fs");\nconst net = require("node:net");\nconst os = require("node:os");\n'
            'const path = require("node:path");\nconst {execFileSync} = require("node:child_process");\n'
            'test("another workspace is found", () => assert.equal(require("count").count("a b"), 2));\n'
            'test("a server on loopback", async () => {\n'
            '  const server = net.createServer((one) => one.end("hello")).listen(0, "127.0.0.1");\n'
            '  await new Promise((ready) => server.once("listening", ready));\n'
            "  const client = net.connect(server.address().port);\n"
            '  const said = await new Promise((got) => client.once("data", got));\n'
            '  assert.equal(String(said), "hello");\n  server.close();\n});\n'
            'test("a mode", () => {\n  const place = fs.mkdtempSync(path.join(os.tmpdir(), "a-"));\n'
            '  fs.writeFileSync(place + "/a", "");\n  fs.chmodSync(place + "/a", 0o640);\n'
            '  assert.equal(fs.statSync(place + "/a").mode & 0o777, 0o640);\n});\n'
            'test("a process", () => assert.equal(String(execFileSync("node", ["-p", "1+1"])), "2\\n"));\n'
        ),
    },
    command=["npm", "test", "--workspaces"],
    needs=["node", "npm"],
    outcomes=tap,
    complete=_link_workspaces,
    bug=("packages/count/index.js", ".split(/\\s+/).length", ".length"),
)  # fmt: skip


def _install_by_pnpm(root: Path) -> None:
    subprocess.run(
        ["pnpm", "install", "--offline", "--ignore-scripts"], cwd=root, check=True, capture_output=True
    )


PNPM = Project(
    name="pnpm",
    files={
        **NODE.files,
        "package.json": _package("all", private="true"),
        "pnpm-workspace.yaml": "packages: ['packages/*']\n",
        "packages/report/package.json": _package(
            "report", dependencies='{"count": "workspace:*"}', scripts=_NODE_TEST
        ),
    },
    command=["pnpm", "-r", "test"],
    needs=["node", "pnpm"],
    outcomes=lambda said: tap(re.sub(r"^\S+ test: ", "", said, flags=re.MULTILINE)),
    complete=_install_by_pnpm,
)

C = Project(
    name="c",
    files={
        "configure": (
            "#!/bin/sh\nset -e\necho 'int main(void){return 0;}' > conftest.c\n${CC:-cc} conftest.c -o conftest\n"
            "./conftest\nrm -f conftest conftest.c\necho '#define STEP 1' > config.h\n"
        ),
        "Makefile": (
            "test: out/bin/run config.h\n\t@./out/bin/run\n\n"
            "out/bin/run: run\n\tmkdir -p out/bin\n\tinstall -m 755 run out/bin/run\n\n"
            "run: run.c calc.o\n\t$(CC) run.c calc.o -o run\n\n"
            "calc.o: calc.c calc.h config.h\n\t$(CC) -c calc.c -o calc.o\n\n"
            "config.h: configure\n\t./configure\n\ntouched:\n\ttouch touched\n"
        ),
        "calc.h": "int add(int a, int b);\n",
        "calc.c": '#include "config.h"\n#include "calc.h"\nint add(int a, int b) { return a + b; }\n',
        "run.c": (
            '#include <stdio.h>\n#include <sys/stat.h>\n#include "calc.h"\n'
            "static int said(int ok, const char *name) {\n"
            '  printf("%s - %s\\n", ok ? "ok" : "not ok", name);\n  return !ok;\n}\n'
            "int main(int count, char **names) {\n  struct stat own;\n  int bad = 0;\n"
            '  bad += said(add(2, 3) == 5, "numbers are added");\n'
            '  bad += said(stat(names[0], &own) == 0 && (own.st_mode & 0777) == 0755, "install sets the mode");\n'
            "  return bad;\n}\n"
        ),
    },
    command=["make", "test"],
    needs=["make", "cc", "install"],
    outcomes=tap,
    bug=("calc.c", "a + b", "a - b"),
)  # fmt: skip

CMAKE = Project(
    name="cmake",
    files={
        "CMakeLists.txt": (
            "cmake_minimum_required(VERSION 3.10)\nproject(calc C)\nenable_testing()\n"
            "add_library(calc calc.c)\nadd_executable(adds adds.c)\ntarget_link_libraries(adds calc)\n"
            "add_test(NAME adds COMMAND adds)\nadd_test(NAME lists COMMAND ${CMAKE_COMMAND} -E echo listed)\n"
        ),
        "calc.c": "int add(int a, int b) { return a + b; }\n",
        "adds.c": "int add(int a, int b);\nint main(void) { return add(2, 3) != 5; }\n",
    },
    command=[
        "ctest", "--build-and-test", ".", "build", "--build-generator", "Unix Makefiles", "--test-command", "ctest",
    ],
    needs=["cmake", "ctest", "make", "cc"],
    outcomes=_by_name(CTEST),
)  # fmt: skip

NINJA = Project(
    name="ninja",
    files={**CMAKE.files},
    command=[
        "ctest",
        "--build-and-test",
        ".",
        "build",
        "--build-generator",
        "Ninja",
        "--test-command",
        "ctest",
    ],
    needs=["cmake", "ctest", "ninja", "cc"],
    outcomes=_by_name(CTEST),
)

RUST = Project(
    name="rust",
    files={
        "Cargo.toml": '[package]\nname = "tally"\nversion = "0.1.0"\nedition = "2021"\n',
        "Cargo.lock": 'version = 3\n\n[[package]]\nname = "tally"\nversion = "0.1.0"\n',
        "src/lib.rs": (
            "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n"
            "    fn adds() {\n        assert_eq!(super::add(2, 3), 5);\n    }\n}\n"
        ),
        "tests/system.rs": (
            "use std::io::{Read, Write};\nuse std::net::{TcpListener, TcpStream};\n\n#[test]\nfn loopback() {\n"
            '    let server = TcpListener::bind("127.0.0.1:0").unwrap();\n'
            "    let mut client = TcpStream::connect(server.local_addr().unwrap()).unwrap();\n"
            '    server.accept().unwrap().0.write_all(b"hello").unwrap();\n    let mut said = [0; 5];\n'
            '    client.read_exact(&mut said).unwrap();\n    assert_eq!(&said, b"hello");\n}\n'
        ),
    },
    command=["cargo", "test"],
    needs=["cargo", "rustc", "cc"],
    outcomes=_by_name(CARGO),
    environment={"CARGO_NET_OFFLINE": "true"},
    bug=("src/lib.rs", "    a + b\n", "    a - b\n"),
)

GO_ = Project(
    name="go",
    files={
        "go.mod": "module example.com/tally\n\ngo 1.19\n",
        "add/add.go": "package add\n\nfunc Add(a, b int) int { return a + b }\n",
        "add/add_test.go": (
            'package add\n\nimport (\n\t"net"\n\t"os"\n\t"testing"\n)\n\n'
            'func TestAdds(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fatal("no")\n\t}\n}\n\n'
            'func TestLoopback(t *testing.T) {\n\tserver, err := net.Listen("tcp", "127.0.0.1:0")\n'
            "\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n\tserver.Close()\n}\n\n"
            'func TestMode(t *testing.T) {\n\tname := t.TempDir() + "/a"\n\tos.WriteFile(name, nil, 0o600)\n'
            "\tos.Chmod(name, 0o640)\n\tfound, _ := os.Stat(name)\n\tif found.Mode().Perm() != 0o640 {\n"
            "\t\tt.Fatal(found.Mode())\n\t}\n}\n"
        ),
    },
    command=["go", "test", "-v", "./..."],
    needs=["go"],
    outcomes=_by_name(GO, name_first=False),
    environment={"GOPROXY": "off", "GOFLAGS": "-mod=mod"},
)  # fmt: skip

JAVA = Project(
    name="java",
    files={
        "src/Add.java": "class Add { static int add(int a, int b) { return a + b; } }\n",
        "src/Run.java": (
            "import java.net.*;\nimport java.nio.file.*;\n\nclass Run {\n"
            '  static void said(boolean ok, String name) { System.out.println((ok ? "ok - " : "not ok - ") + name); }\n'
            "  public static void main(String[] given) throws Exception {\n"
            '    said(Add.add(2, 3) == 5, "numbers are added");\n'
            '    try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"));\n'
            "         Socket client = new Socket(server.getInetAddress(), server.getLocalPort())) {\n"
            '      said(client.isConnected(), "a server on loopback");\n    }\n'
            '    Path made = Files.createTempFile("a", "b");\n    said(Files.exists(made), "a temporary file");\n'
            "    Files.delete(made);\n  }\n}\n"
        ),
        "run.sh": "set -e\nmkdir -p out\njavac -d out src/*.java\nexec java -cp out Run\n",
    },
    command=["sh", "run.sh"],
    needs=["javac", "java"],
    outcomes=tap,
)  # fmt: skip

PERL = Project(
    name="perl",
    files={
        "lib/Add.pm": "package Add;\nsub add { $_[0] + $_[1] }\n1;\n",
        "t/add.t": (
            "use strict; use Test::More tests => 3; use Add; use File::Temp; use IO::Socket::INET;\n"
            "is(Add::add(2, 3), 5, 'numbers are added');\n"
            "my $file = File::Temp->new; chmod 0640, $file->filename;\n"
            "is((stat $file->filename)[2] & 0777, 0640, 'a mode');\n"
            "ok(IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1'), 'a server on loopback');\n"
        ),
    },
    command=["prove", "-lv", "t"],
    needs=["prove", "perl"],
    outcomes=tap,
)


def _commit(root: Path) -> None:
    """Two commits; the environment of the machine has no part in them."""
    own = {
        **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
    }  # fmt: skip

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=root, env=own, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "First")
    (root / "a.txt").write_text("one\ntwo\n")
    git("commit", "-qam", "Second")
    (root / "a.txt").write_text("one\ntwo\nthree\n")


GIT = Project(
    name="git",
    files={
        "a.txt": "one\n",
        "run.sh": (
            'said() { if [ "$2" = "$3" ]; then echo "ok - $1"; else echo "not ok - $1"; fi; }\n'
            'said log "$(git log --format=%s | tr "\\n" " ")" "Second First "\n'
            'said diff "$(git diff --stat | tail -1)" " 1 file changed, 1 insertion(+)"\n'
            'said status "$(git status --porcelain)" " M a.txt"\n'
            'said blame "$(git blame -s a.txt | wc -l | tr -d " ")" 3\n'
            'said show "$(git show HEAD~1:a.txt)" one\n'
        ),
    },
    command=["sh", "run.sh"],
    needs=["git"],
    outcomes=tap,
    complete=_commit,
)


def _link_pair(root: Path) -> None:
    _commit(root)
    os.link(root / "pair" / "one", root / "pair" / "two")


LIMITS = Project(
    name="limits",
    files={
        "a.txt": "one\n",
        "kept/file": "kept\n",
        "pair/one": "one\n",
        "run.sh": (
            'tried() { name=$1; shift; if "$@" >/dev/null; then echo "ok - $name"; else echo "not ok - $name"; fi; }\n'
            "tried 'rename(2) of a directory of the root' perl -e 'rename(\"kept\", \"moved\") or die $!'\n"
            "tried 'a name of two hard-linked ones is written through'"
            " sh -c 'echo 2 >> pair/one; cmp pair/one pair/two'\n"
            "tried 'a device node' mknod node c 1 3\n"
            "tried 'git commit' git -c user.name=a -c user.email=a@example.com commit -qam Third\n"
        ),
    },
    command=["sh", "run.sh"],
    needs=["git", "perl", "mknod"],
    outcomes=tap,
    complete=_link_pair,
)

PROJECTS = (PYTHON, NODE, PNPM, C, CMAKE, NINJA, RUST, GO_, JAVA, PERL, GIT, LIMITS)
