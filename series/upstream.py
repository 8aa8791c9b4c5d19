"""upstream's own tests on the patched package, beside the same run on the unpatched one: only what differs is printed"""
import hashlib, json, shutil, subprocess, sys
import xml.etree.ElementTree as ET
from pathlib import Path
from series import BASE, Refused, apply, base, suite, venv

SUITES = {"unit": {}, "null": {"DEV": "NULL", "SPEC": "2"}, "backend": {}}
TIMEOUT = 300
SCRATCH = suite.BUILD/"upstream"

def pytest(where:list[str], env:dict[str, str], *args:str) -> dict[str, str]:
  """outcome by test, in the scratch folder that holds upstream's tests and the package"""
  (xml:=SCRATCH/"junit.xml").unlink(missing_ok=True)
  options = ["--tb=no", "--no-header", "--show-capture=no", "--continue-on-collection-errors", "-p", "no:cacheprovider", f"--timeout={TIMEOUT}"]
  done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-o", "junit_family=xunit1", "--junitxml", str(xml),
                         *options, *args, *where], cwd=SCRATCH, stdout=sys.stderr,
                        env=venv.environ(CACHEDB=str(SCRATCH/"cache.db"), TEST_TIMEOUT=str(TIMEOUT), **env))
  if done.returncode not in (0, 1, 5): raise Refused(f"pytest gave no result for {' '.join(where)}: its own words stand above")
  found:dict[str, str] = {}
  for case in ET.parse(xml).iter("testcase"):
    f = case.get("file", "")
    cls = case.get("classname", "").removeprefix(f.removesuffix(".py").replace("/", ".")).strip(".")
    outcome = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
    key = "::".join(x for x in (f, cls, case.get("name", "")) if x)
    if found.get(key) in (None, "passed"): found[key] = outcome.replace("failure", "failed")
  return found

def lay(files:dict[str, bytes]) -> None:
  apply.write(files, SCRATCH)
  (SCRATCH/"cache.db").unlink(missing_ok=True)

def outcomes(files:dict[str, bytes], tests:str, where:list[str], env:dict[str, str]) -> dict[str, str]:
  key = hashlib.sha256(repr((base.digest(files), tests, where, sorted(env.items()), sys.version)).encode()).hexdigest()[:16]
  if (cache:=suite.BUILD/f"upstream-{key}.json").is_file(): return json.loads(cache.read_text())
  lay(files)
  cache.write_text(json.dumps(found:=pytest(where, env, "-n", "2", "--max-worker-restart", "1000")))
  return found

def compare(checkout:Path, args:list[str]) -> int:
  where:dict[str, list[str]] = {}
  for a in (a.removeprefix(str(checkout)).strip("/").removeprefix("test/") for a in args or SUITES):
    if a.split("/")[0] not in SUITES or not (checkout/"test"/a.split("::")[0]).exists():
      raise Refused(f"{a} is not in {checkout}/test: name {', '.join(SUITES)}, or a file in one of them")
    where.setdefault(a.split("/")[0], []).append(f"test/{a}")
  # a copy, since a link would lead python back to the checkout's own tinygrad
  shutil.rmtree(SCRATCH, ignore_errors=True)
  SCRATCH.mkdir(parents=True)
  for d in ("test", "extra", "examples"): shutil.copytree(checkout/d, SCRATCH/d, ignore=shutil.ignore_patterns("__pycache__"))
  (SCRATCH/"pyproject.toml").touch()
  for name in ("pyproject.toml", "conftest.py"):
    if (checkout/name).is_file(): shutil.copy(checkout/name, SCRATCH)
  tests = base.digest({str(f.relative_to(SCRATCH)): f.read_bytes() for f in SCRATCH.rglob("*") if f.is_file()})
  plain, ours, bad = base.find()[0], apply.build(), 0
  flags:list[dict[str, str]] = [{}, {"SYMBOLIC_MULTI": "1"}] if any(b"SYMBOLIC_MULTI" in x for x in ours.values()) else [{}]
  for name, paths in where.items():
    for flag in flags:
      label = f"{name}, SYMBOLIC_MULTI={flag.get('SYMBOLIC_MULTI', 'unset')}"
      was, now = (outcomes(files, tests, paths, SUITES[name] | env) for files, env in ((plain, {}), (ours, flag)))
      if odd := sorted(k for k in was.keys() | now.keys() if was.get(k) != now.get(k)):
        # once more, alone: what differs only under load or by chance is no difference
        again = []
        for files, env in ((plain, {}), (ours, flag)):
          lay(files)
          again.append(pytest(odd, SUITES[name] | env, "-n", "0"))
        sure = [k for k in odd if again[0].get(k) != again[1].get(k)]
        for k in sure: print(f"{label}: {k}: {again[0].get(k, 'missing')} -> {again[1].get(k, 'missing')}")
        worse = [k for k in sure if again[1].get(k) in ("failed", "error", None) and again[0].get(k) not in ("failed", "error", None)]
      else: sure, worse = [], []
      count = {o: list(now.values()).count(o) for o in ("passed", "failed", "error", "skipped")}
      print(f"{label}: {', '.join(f'{n} {o}' for o, n in count.items())}; beside unpatched {BASE}: {len(worse)} newly failing, "
            f"{len(sure)-len(worse)} other differences, {len(odd)-len(sure)} that did not last", flush=True)
      bad += len(worse)
  return int(bad > 0)
