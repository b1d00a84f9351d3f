"""generated/ is what the compiler writes today, and the sources pass the architecture lint and clang-format.

Relies on: tests/generated.sh, tests/lint.sh, git. Relied on by: run.py."""
from harness import BUILD, must


def test_generated_is_current():
    must(["sh", "tests/generated.sh", BUILD, "check"])


def test_architecture_lint():
    must(["sh", "tests/lint.sh"])


def test_clang_format():
    must(["sh", "-c", "git ls-files '*.c' '*.h' | grep -v '^generated/' | xargs clang-format --dry-run -Werror"])
