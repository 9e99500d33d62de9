"""What the rules of scripts/lint.d share: which files there are, C source without comments, and the report."""

import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def git(*words):
    """Output of a git command in the project, or None if that fails (also where there is no git)."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def files(*patterns):
    """Sorted paths, from the project's root, of tracked and new files that match one of the patterns ('*' matches
    '/' too). Without git: every file outside build folders."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = {name for name in listed.split("\0") if name and os.path.isfile(os.path.join(ROOT, name))}
    else:
        names = set()
        for folder, folders, found in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in (".git", "build", "target", "node_modules", "__pycache__")]
            names.update(os.path.relpath(os.path.join(folder, name), ROOT) for name in found)
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def code_only(text):
    """C text with comments blanked and literals emptied; every line keeps its number."""

    def blank(match):
        token = match[0]
        if token[0] == "/":
            return " " + "\n" * token.count("\n")
        return token[0] * 2

    return _TOKEN.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def report(rule, findings, notes=()):
    """Prints the rule's line, its notes and findings, and ends the process: status 1 if there are findings."""
    print(f"FAIL {rule}" if findings else f"ok   {rule}")
    for note in notes:
        print(f"       {note}")
    for finding in findings:
        print(f"  {finding}")
    sys.exit(1 if findings else 0)
