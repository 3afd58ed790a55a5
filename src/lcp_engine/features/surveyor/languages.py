"""Recognise the language of a file by its name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Sort(StrEnum):
    """The sort of a file, as a reader sees it."""

    CODE = "code"
    PROSE = "documentation"
    DATA = "data and configuration"
    BINARY = "binary"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    sort: Sort


def language_of(path: str) -> Language:
    """The language of `path`; `OTHER` for an unknown name."""
    name = path[path.rfind("/") + 1 :].lower()
    if found := _BY_NAME.get(name):
        return found
    if name.endswith(".txt") and (name.startswith("requirements") or path.startswith("requirements/")):
        return _BY_NAME["requirements.txt"]
    if ".so." in name:
        return _BY_SUFFIX["so"]
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem:
        return OTHER
    if stem.endswith(".blade") and suffix == "php":
        return _BY_SUFFIX["html"]
    return _BY_SUFFIX.get(suffix, OTHER)


OTHER = Language("other", Sort.OTHER)

_CODE = """
Ada: adb ads
Agda: agda
Assembly: s asm nasm
Astro: astro
AWK: awk
Ballerina: bal
Batch: bat cmd
Bicep: bicep
C: c h
C#: cs csx
C++: cc cpp cxx c++ hh hpp hxx h++ inl ipp tpp ino
Clojure: clj cljs cljc
CMake: cmake
COBOL: cob cbl cpy
CoffeeScript: coffee
Coq: v.coq
Crystal: cr
CSS: css
CUDA: cu cuh
Cython: pyx pxd pxi
D: d
Dart: dart
Elixir: ex exs heex eex leex
Elm: elm
Emacs Lisp: el
Erlang: erl hrl
F#: fs fsi fsx
Fish: fish
Fortran: f f77 f90 f95 f03 f08 for
GDScript: gd
GLSL: glsl vert frag geom comp
Go: go
GraphQL: graphql gql
Groovy: groovy gvy gradle
Handlebars: hbs handlebars mustache
Haskell: hs lhs
HCL: tf hcl tfvars
HLSL: hlsl fx
HTML: html htm xhtml
Java: java
JavaScript: js jsx mjs cjs
Jinja: j2 jinja jinja2
Julia: jl
Jupyter Notebook: ipynb
Kotlin: kt kts
Less: less
Liquid: liquid
Lua: lua
Makefile: mk mak make
Automake: am
M4: m4 ac
MDX: mdx
Meson: wrap
Nim: nim nims
Nix: nix
Objective-C: m mm
OCaml: ml mli mll mly
Odin: odin
Pascal: pas pp dpr lpr
Perl: pl pm pod
PHP: php phtml php3 php4 php5
PowerShell: ps1 psm1 psd1
Prolog: prolog
Protocol Buffers: proto
Pug: pug jade
PureScript: purs
Python: py pyw pyi
QML: qml
R: r rmd
Racket: rkt
Raku: raku rakumod
ReScript: res resi
Ruby: rb rake gemspec erb ru
Rust: rs
Sass: sass scss
Scala: scala sc sbt
Scheme: scm ss sld
Shell: sh bash zsh ksh
Smalltalk: st
Solidity: sol
SQL: sql ddl dml
Standard ML: sml
Starlark: bzl star bazel
Stylus: styl
Svelte: svelte
Swift: swift
Tcl: tcl
Thrift: thrift
TypeScript: ts tsx mts cts
V: vsh
Vala: vala vapi
Verilog: sv svh
VHDL: vhd vhdl
Vim Script: vim
Visual Basic: vb vbs bas
Vue: vue
WebAssembly: wat wast
WGSL: wgsl
XSLT: xsl xslt
Zig: zig
"""
_PROSE = """
Markdown: md markdown mdown mkd
reStructuredText: rst rest
AsciiDoc: adoc asciidoc
Org: org
Text: txt text
TeX: tex sty bib
Texinfo: texi texinfo
Manual page: 1 2 3 4 5 6 7 8
"""
_DATA = """
JSON: json jsonc json5 jsonl ndjson geojson webmanifest map
YAML: yaml yml
TOML: toml
Cabal: cabal
XML: xml xsd wsdl plist xib storyboard resx csproj fsproj vbproj props targets
INI: ini cfg conf properties editorconfig desktop service
CSV: csv tsv psv
SVG: svg
Translation: po pot xliff xlf arb strings ftl
Lock file: lock
Log: log
Patch: patch diff
Template: in tmpl tpl template
Certificate: crt cer pem csr
Signature: asc sig
Environment: env
"""
_BINARY = """
Image: png jpg jpeg gif webp bmp ico tif tiff psd avif heic icns xcf
Font: ttf otf woff woff2 eot
Audio: mp3 wav ogg flac m4a aac mid opus
Video: mp4 webm mov avi mkv m4v
Archive: zip gz tgz bz2 xz zst 7z rar tar jar war ear whl egg deb rpm apk dmg iso cab crate nupkg
Program or library: exe dll so dylib a o obj lib pyc pyo pyd class wasm bin elf node ko
Document: pdf doc docx xls xlsx ppt pptx odt ods odp epub
Database: db sqlite sqlite3 mdb rdb
Model or array: npy npz pkl pickle h5 hdf5 onnx pt pth safetensors gguf parquet feather arrow mat
3D model: stl fbx blend glb 3ds
Compiled catalogue: mo qm gmo
Data file: dat pak idx pack
"""
_NAMES = """
Makefile: makefile gnumakefile justfile
Dockerfile: dockerfile containerfile
CMake: cmakelists.txt
Groovy: jenkinsfile
Ruby: gemfile rakefile podfile vagrantfile fastfile brewfile guardfile
Starlark: build.bazel workspace tiltfile
Meson: meson.build meson_options.txt
Go: go.mod go.sum
"""
_NAMED_PROSE = """
Text: readme license licence copying notice authors contributors changelog changes news install todo copyright
"""


def _read(lines: str, sort: Sort) -> dict[str, Language]:
    rows = (line.partition(":") for line in lines.strip().splitlines())
    return {word: Language(name, sort) for name, _, words in rows for word in words.split()}


_BY_SUFFIX = (
    _read(_CODE, Sort.CODE)
    | _read(_PROSE, Sort.PROSE)
    | _read(_DATA, Sort.DATA)
    | _read(_BINARY, Sort.BINARY)
)
_BY_NAME = (
    _read(_NAMES, Sort.CODE)
    | _read(_NAMED_PROSE, Sort.PROSE)
    | {"requirements.txt": Language("Requirements", Sort.DATA), ".gitignore": Language("Git", Sort.DATA)}
    | dict.fromkeys(
        ("package-lock.json", "pnpm-lock.yaml", "npm-shrinkwrap.json", "bun.lockb", "package.resolved"),
        Language("Lock file", Sort.DATA),
    )
    | {"go.sum": Language("Lock file", Sort.DATA), "go.mod": Language("Go module", Sort.DATA)}
)
