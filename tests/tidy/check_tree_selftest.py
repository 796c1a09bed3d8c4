"""Every tidy rule must catch a small tree that breaks it, and leave a good tree alone."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from check_tree import check
from tidy_tree import blank_out

GOOD_TREE = {
    "include/tersum/status.h": "// What it is.\n#pragma once\n#include <string>\n",
    "src/base/check.h": '// What it is.\n#pragma once\n#include "tersum/status.h"\n',
    "src/platform/clock.cc": '#include "base/check.h"\nint f() { return now(); }\n',
    "src/platform/poller.cc": "#include <sys/epoll.h>\n#include <ctime>\n",
    "src/platform/environment.cc": 'const char* f() { return getenv("TERSUM_FORCE_ISA"); }\n',
    "src/codec/kernels/add.cc": '#include <hwy/highway.h>\n#include "base/check.h"\n',
    "src/runtime/node.cc": '#include "codec/codec.h"\n#include "platform/poller.h"\n',
    "src/codec/codec.h": "// What it is.\n#pragma once\n",
    "src/platform/poller.h": "// What it is.\n#pragma once\n#include <sys/epoll.h>\n",
    "bench/bench_add.cc": '#include <benchmark/benchmark.h>\n#include "codec/codec.h"\n',
    "python/tersum/__init__.py": '"""tersum."""\n',
    "python/tersum/cli/__init__.py": 'print("a program may")\n',
    "CMakeLists.txt": "project(x)\n",
    "src/CMakeLists.txt": "# may repeat\n",
}


def findings(files: dict[str, str], rule: str | None = None) -> list[str]:
    """The findings on a tree of ``files`` (path -> text), of one rule or of all, as text."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            full = Path(folder) / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(text, encoding="utf-8")
        return [str(f) for f in check(Path(folder)) if rule is None or f.rule == rule]


class CheckTree(unittest.TestCase):
    def expect_caught(self, rule: str, path: str, text: str, count: int = 1) -> None:
        """Adding ``path`` to the good tree must give ``count`` findings of ``rule``, all in it."""
        caught = findings(GOOD_TREE | {path: text}, rule)
        self.assertEqual(len(caught), count, (path, text, caught))
        self.assertTrue(all(line.startswith(path + ":") for line in caught), caught)

    def test_a_good_tree_has_no_findings(self) -> None:
        self.assertEqual(findings(GOOD_TREE), [])

    def test_an_empty_tree_is_an_error(self) -> None:
        with self.assertRaises(SystemExit):
            findings({})

    def test_layers_are_one_way(self) -> None:
        for path, header in {
            "src/base/a.cc": "platform/poller.h",
            "src/codec/a.cc": "platform/poller.h",
            "src/codec/kernels/a.cc": "codec/codec.h",
            "src/plan/a.cc": "codec/codec.h",
            "src/xla/a.cc": "platform/poller.h",
            "tools/a.cc": "base/check.h",
            "examples/x/a.cc": "base/check.h",
            "include/tersum/a.h": "base/check.h",
            "src/transport/tcp/a.cc": "codec/codec.h",
        }.items():
            self.expect_caught("layers", path, f'#include "{header}"\n')

    def test_layers_know_their_outside(self) -> None:
        for path, include in {
            "src/codec/a.cc": "<hwy/highway.h>",
            "src/runtime/a.cc": "<sys/socket.h>",
            "src/transport/a.cc": "<immintrin.h>",
            "src/base/a.cc": "<nlohmann/json.hpp>",
            "src/plan/a.cc": "<boost/asio.hpp>",
            "src/runtime/b.cc": '"no/such/header.h"',
            "src/runtime/c.cc": "<codec/codec.h>",
        }.items():
            self.expect_caught("layers", path, f"#include {include}\n")

    def test_a_folder_outside_the_table_is_caught(self) -> None:
        self.expect_caught("layers", "src/misc/a.cc", "int a;\n")

    def test_commented_includes_do_not_count(self) -> None:
        text = '// #include "runtime/x.h"\n/*\n#include "runtime/x.h"\n*/\n'
        self.assertEqual(findings(GOOD_TREE | {"src/base/a.cc": text}), [])

    def test_header_openings(self) -> None:
        self.expect_caught("header-opening", "src/base/a.h", "#pragma once\n")
        self.expect_caught("header-opening", "src/base/a.h", "// What it is.\n")
        self.assertEqual(findings({"src/codec/kernels/a-inl.h": "// What it is.\n"}), [])

    def test_optional_imports(self) -> None:
        for text in ("import jax\n", "from torch import nn\n", "import matplotlib.pyplot as p\n"):
            self.expect_caught("optional-import", "python/tersum/a.py", text)
        good = {
            "python/tersum/jax/a.py": "import jax\n",
            "python/tersum/b.py": "def f():\n    import jax\n",
            "python/tersum/c.py": "from . import jax\n",
        }
        self.assertEqual(findings(GOOD_TREE | good), [])

    def test_file_sizes(self) -> None:
        self.expect_caught("file-size", "src/base/a.cc", "int a;\n" * 1001)
        warned = findings(GOOD_TREE | {"src/base/a.cc": "//\n" * 501}, "file-size")
        self.assertEqual(len(warned), 1)
        self.assertIn("warning", warned[0])
        self.assertEqual(findings(GOOD_TREE | {"src/base/a.cc": "//\n" * 500}), [])

    def test_function_sizes(self) -> None:
        for count, caught in ((68, 0), (69, 1)):
            cpp = "namespace n {\nint f(int a) {\n" + "  ++a;\n" * count + "}\n}\n"
            self.expect_caught("function-size", "src/base/a.cc", cpp, caught)
            header = "// What.\n#pragma once\n" + cpp
            self.expect_caught("function-size", "src/base/a.h", header, caught)
        for count, caught in ((69, 0), (70, 1)):
            python = "class A:\n    def f(self, a):\n" + "        a += 1\n" * count
            self.expect_caught("function-size", "python/tersum/a.py", python, caught)

    def test_python_that_does_not_parse(self) -> None:
        self.expect_caught("syntax", "python/tersum/a.py", "def f(:\n")
        self.expect_caught("syntax", "examples/x/a.py", "def f(:\n")

    def test_columns(self) -> None:
        self.expect_caught("columns", "src/base/a.cc", "//" + "x" * 99 + "\n")
        self.expect_caught("columns", "python/tersum/a.py", "#" + "x" * 100 + "\n")
        self.assertEqual(findings(GOOD_TREE | {"src/base/a.cc": "//" + "é" * 98 + "\n"}), [])

    def test_unique_names(self) -> None:
        files = GOOD_TREE | {"src/wire/a.cc": "", "tests/unit/wire/a.cc": "int a;\n"}
        self.assertEqual(len(findings(files, "unique-names")), 1)

    def test_banned_calls(self) -> None:
        for rule, call in (
            ("time", "std::chrono::steady_clock::now();"),
            ("time", "std::this_thread::sleep_for(x);"),
            ("time", "clock_gettime(CLOCK_MONOTONIC, &t);"),
            ("time", "time(nullptr);"),
            ("random", "std::random_device device;"),
            ("random", "getrandom(p, 8, 0);"),
            ("environment", 'getenv("HOME");'),
            ("printing", 'printf("x");'),
            ("printing", "std::cout << 1;"),
            ("assert", "assert(a == b);"),
            ("fused", "auto v = MulAdd(a, b, c);"),
            ("fused", "float v = std::fma(a, b, c);"),
        ):
            self.expect_caught(rule, "src/runtime/a.cc", f"void f() {{ {call} }}\n")

    def test_calls_that_only_look_banned(self) -> None:
        text = (
            'static_assert(true);\n// now() is banned; so is printf("x")\n'
            'const char* s = "getenv(";\nauto t = clock.now_ns();\n'
            "char b[8]; int n = snprintf(b, 8, \"x\");\nint grouped = 1'000; char c = '\"';\n"
        )
        self.assertEqual(findings(GOOD_TREE | {"src/runtime/a.cc": text}), [])

    def test_banned_texts(self) -> None:
        self.expect_caught("native", "src/wire/CMakeLists.txt", "add_options(-march=native)\n")
        self.assertEqual(findings(GOOD_TREE | {"docs/a.md": "never -march=native\n"}), [])
        self.expect_caught("machine-path", "docs/a.md", "see /home/someone/x\n")
        self.expect_caught("machine-path", "scripts/a.sh", "cd /work/x\n")
        self.expect_caught("registry", "scripts/a.sh", "pip --index-url x\n")

    def test_links_lead_somewhere(self) -> None:
        page = "# One: `all`, or 2?\n[a](#one-all-or-2) [b](b.md#there) [c](../CMakeLists.txt)\n"
        other = "## There\n[n](https://example.org/x.md#y) [a](a.md)\n"
        self.assertEqual(findings(GOOD_TREE | {"docs/a.md": page, "docs/b.md": other}), [])
        self.expect_caught("links", "docs/a.md", "[gone](b.md)\n")
        self.expect_caught("links", "docs/a.md", "# Here\n[x](#there) [y](a.md#nowhere)\n", 2)

    def test_the_python_package_does_not_print(self) -> None:
        self.expect_caught("printing", "python/tersum/a.py", 'print("x")\n')


class BlankOut(unittest.TestCase):
    def test_comments_and_literals_go_and_lines_stay(self) -> None:
        source = 'a(); // x\nb("c\\"d"); /* e\nf */ g(R"x(h)" i)x"); j(\'"\', 1\'0);\n'
        blank = blank_out(source, strings=True)
        self.assertEqual(len(blank), len(source))
        self.assertEqual(blank.count("\n"), source.count("\n"))
        kept = "".join(blank.split())
        self.assertEqual(kept, "a();b();g();j(,1'0);")

    def test_strings_may_stay(self) -> None:
        self.assertEqual(blank_out('#include "a.h" // b', strings=False).strip(), '#include "a.h"')


if __name__ == "__main__":
    unittest.main()
