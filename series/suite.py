"""our tests at every stage, the proof that each patch has a test, and the linters"""
import os, shutil, subprocess, sys
from pathlib import Path
from series import ROOT, Refused, apply, read, stages, upto, venv

BUILD = ROOT/".build"

def package(where:str="", without:str="") -> Path:
  """a folder with the package up to where; the compile cache beside it is its own, since another's would hide faults"""
  files = apply.build(where, without or None)
  if (folder:=BUILD/(without and f"without-{without}" or where or "whole")).exists(): shutil.rmtree(folder)
  apply.write(files, folder)
  return folder

def reads_flag(folder:Path) -> bool: return any("SYMBOLIC_MULTI" in f.read_text() for f in (folder/"tinygrad").rglob("*.py"))

def pytest(*args:str, folder:Path|None=None, **env:str) -> int:
  if folder: env |= {"PYTHONPATH": str(folder), "CACHEDB": str(folder/"cache.db")}
  return subprocess.run([sys.executable, "-m", "pytest", "-n", "2", *args], cwd=ROOT, env=venv.environ(**env)).returncode

def test(args:list[str]) -> int:
  if args or os.environ.get("SERIES_UPTO"): return pytest(*args or ["test"])
  rc = 0
  for i, stage in enumerate(reversed(stages(read()) or [""])):
    folder = package(stage)
    for flag in ("", "1")[:1 + reads_flag(folder)]:
      venv.say(f"tests at stage {stage or 'base'}, SYMBOLIC_MULTI={flag or 'unset'}")
      # the tool's own tests don't depend on the stage, and the last stage is tested as installed
      first, env = i == 0 and not flag, {"SYMBOLIC_MULTI": flag, "SERIES_UPTO": stage}
      got = pytest("-q", "test", *([] if first else ["--ignore=test/external"]), folder=None if i == 0 else folder, **env)
      rc |= 0 if got == 5 and i else got  # 5: an earlier stage may have no test
  return rc

def mutate(names:list[str]) -> int:
  """a test marked with a patch has to fail without it, or, where later patches need it, on the series just before it"""
  series, bad = read(), []
  options = ["-q", "--no-header", "--tb=no", "--continue-on-collection-errors", "--ignore=test/external"]
  for name in names or [p.name for p in series]:
    n = upto(series, name)
    name, before = series[n-1].name, series[n-2].file[:-6] if n > 1 else "base"
    try:
      folder, how, here = package(without=name), "without it", ""
      alive = subprocess.run([sys.executable, "-c", "from tinygrad import Tensor; assert (Tensor([1, 2]) + 1).tolist() == [2, 3]"], cwd=folder,
                             env=venv.environ(CACHEDB=str(folder/"cache.db")), capture_output=True).returncode == 0
    except Refused: alive = False
    if not alive: folder, how, here = package(before), "before it", before
    found = {pytest(*options, "test", folder=folder, SYMBOLIC_MULTI=flag, SERIES_WITHOUT=name, SERIES_UPTO=here)
             for flag in ("", "1")[:1 + (reads_flag(folder) or reads_flag(package(name)))]}
    venv.say(f"{name}: " + (f"fails {how}" if 1 in found else "NO TEST IS MARKED WITH IT" if found == {5} else f"NO TEST FAILS {how.upper()}"))
    if 1 not in found: bad.append(name)
  print(f"{len(bad)} patches without a test that fails: {' '.join(bad)}" if bad else "every patch has a test that fails without it")
  return int(bool(bad))

def lint() -> int:
  folder, settings = package(), str(ROOT/"pyproject.toml")
  ours = [d for d in ("series", "setup.py", "test", "examples", "bench") if (ROOT/d).exists()]
  flows = [str(f) for f in sorted((ROOT/".github/workflows").glob("*.yml"))]
  todo:list[tuple[Path, list[str]]] = [
    (ROOT, ["ruff", "check", "--quiet", "--config", settings, *ours]),
    (ROOT, ["ruff", "check", "--quiet", "--config", settings, "--no-respect-gitignore", str(folder/"tinygrad")]),
    (folder, ["mypy", "--config-file", settings, "tinygrad"]),
    # the tests call tinygrad's api as its users do, which its own types don't always allow; upstream doesn't check its tests either
    (folder, ["mypy", "--config-file", settings, *(str(ROOT/d) for d in ours if d != "test")]),
    (ROOT, ["check-jsonschema", "--quiet", "--builtin-schema", "vendor.github-workflows", *flows]),
  ]
  if shutil.which("actionlint"): todo.append((ROOT, ["actionlint", *flows]))  # no package carries it, so only where the machine has it
  rc = 0
  for where, cmd in todo:
    venv.say(f"{' '.join(os.path.relpath(c, ROOT) if os.path.isabs(c) else c for c in cmd)}")
    rc |= subprocess.run(cmd, cwd=where, env=venv.environ(MYPYPATH=f"{folder}{os.pathsep}{ROOT}")).returncode
  print("lint found something" if rc else "lint is clean")
  return rc
