"""./run: starts with the machine's Python, goes on in .venv"""
import os, subprocess, sys
from pathlib import Path
sys.path[0] = str(Path(__file__).resolve().parents[1])
from series import ROOT, Refused, read, upto, venv, version

# command: what it does, the dependency groups of pyproject.toml that it needs, whether it needs the patched package
COMMANDS:dict[str, tuple[str, tuple[str, ...], bool]] = {
  "job": ("trains a digit classifier on 4 devices and on one, and compares them: [--devices N] [--steps N] [--plot FILE]", ("job",), True),
  "test": ("all tests, at every stage and with the flag off and on; with pytest's arguments: those, once", ("job", "test"), True),
  "mutate": ("does each patch have a test that fails without it? all patches, or those named: [NAME...]", ("job", "test"), False),
  "lint": ("ruff and mypy on our files and on the patched package, and the workflow files", ("lint",), False),
  "bench": ("the figures, patched beside unpatched: all of bench/, or one: [NAME [ARGS...]]", ("job",), True),
  "tree": ("makes tree/, the patched package as a git history to edit, one commit a patch: [--force]", (), False),
  "save": ("writes patches/ from the commits in tree/: [--force]", (), False),
  "check": ("do the patches apply, agree with git, and are they as save writes them?", (), False),
  "export": ("mails for upstream into the new folder DIR, or a branch in the tinygrad checkout DIR: DIR", (), False),
  "upstream": ("what differs from unpatched 0.14.0 in upstream's own tests, from your checkout of it: DIR [unit null backend | FILE...]",
               ("job", "test", "upstream"), True),
  "build": ("writes the package as far as a stage or a patch into DIR, to put on PYTHONPATH: DIR [STAGE]", (), False),
}

def script(name:str, args:list[str], **env:str) -> int:
  return subprocess.run([sys.executable, str(ROOT/name), *args], env=venv.environ(**env)).returncode

def main(cmd:str, args:list[str]) -> int:
  if cmd not in COMMANDS or args[:1] in (["-h"], ["--help"]) and cmd != "job":
    print("\n".join(f"./run {c:9}{h}" for c, (h, _, _) in COMMANDS.items()))
    if cmd in ("", "-h", "--help", "help", *COMMANDS): return 0
    print(f"error: there is no ./run {cmd}: the commands stand above", file=sys.stderr)
    return 2
  _, groups, package = COMMANDS[cmd]
  if cmd == "upstream" and not (args and Path(args[0], "test/unit").is_dir()):  # before much is downloaded
    raise Refused(f"{args[0]} is not a checkout of tinygrad: test/unit isn't in it" if args else "./run upstream takes a tinygrad checkout's folder")
  if not venv.inside():
    upto(read(), os.environ.get("SERIES_UPTO"))  # a bad series is found before much is downloaded
    venv.make()
    os.execv(venv.PYTHON, [str(venv.PYTHON), str(ROOT/"series"), cmd, *args])
  venv.tools(groups)
  if package: venv.package()
  from series import apply, export, suite, tree, upstream
  match cmd, args:
    case "job", _: return script("examples/digits.py", args, SYMBOLIC_MULTI="1")
    case "bench", _:
      found = [f"bench/{args[0]}.py"] if args else sorted(f"bench/{f.name}" for f in (ROOT/"bench").glob("[!_]*.py"))
      if missing := [f for f in found if not (ROOT/f).is_file()]: raise Refused(f"{missing[0]} is not there: ./run bench alone runs all there are")
      return max([script(f, args[1:], TINYGRAD_BASE=str(ROOT/".upstream")) for f in found], default=0)
    case "test", _: return suite.test(args)
    case "mutate", _: return suite.mutate(args)
    case "lint", []: return suite.lint()
    case "upstream", [where, *suites]: return upstream.compare(Path(where).resolve(), suites)
    case "tree" | "save", [] | ["--force"]: (tree.tree if cmd == "tree" else tree.save)(bool(args))
    case "check", []: tree.check()
    case "export", [where]: export.export(Path(where))
    case "build", [where] | [where, _]:
      if Path(where).is_file(): raise Refused(f"{where} is a file: ./run build writes into a folder")
      apply.write(apply.build((args + [""])[1]), Path(where))
      print(f"{where}/tinygrad is tinygrad {version((args + [''])[1])}: put {where} on PYTHONPATH")
    case _: raise Refused(f"./run {cmd} takes other arguments: {COMMANDS[cmd][0]}")
  return 0

if __name__ == "__main__":
  try: sys.exit(main((sys.argv + [""])[1], sys.argv[2:]))
  except Refused as e: sys.exit(f"error: {e}")
  except KeyboardInterrupt: sys.exit(130)
