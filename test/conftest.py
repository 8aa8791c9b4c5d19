"""marks that tie a test to the series, so that the suite runs at every stage

  @pytest.mark.patch("NAME")   guards this patch (its file's name without number and .patch): fails without it, and is left out on stages before it
  @pytest.mark.needs("NAME")   is left out on stages that end before this patch or stage

A module whose imports need a patch says it in one line at its top level: pytestmark = pytest.mark.needs("NAME")
Tests under test/null run with DEV=NULL.
"""
import os, re, sys
from pathlib import Path
import pytest
sys.path.append(str(Path(__file__).parents[1]))
from series import Refused, read, upto  # noqa: E402

SERIES = read()
HERE = upto(SERIES, os.getenv("SERIES_UPTO"))
WITHOUT = os.getenv("SERIES_WITHOUT")
LINE = re.compile(r"^pytestmark = (.*)$", re.M)
MARK = re.compile(r"""pytest\.mark\.(?:patch|needs)\(["']([^"']+)["']\)""")

def pytest_configure(config):
  config.addinivalue_line("markers", "patch(name): guards this patch of the series")
  config.addinivalue_line("markers", "needs(name): needs this patch or stage of the series")

def known(name):
  try: return name == WITHOUT or upto(SERIES, name) <= HERE
  except Refused as e: raise pytest.UsageError(f"a test's mark: {e}") from e

def pytest_ignore_collect(collection_path):
  # before its imports are tried
  if collection_path.suffix != ".py" or not (m := LINE.search(collection_path.read_text())): return None
  return None if all(map(known, MARK.findall(m[1]))) else True

def wanted(item):
  marks = {kind: [n for m in item.iter_markers(kind) for n in m.args] for kind in ("patch", "needs")}
  return all(map(known, marks["patch"] + marks["needs"])) and (not WITHOUT or WITHOUT in marks["patch"])

def pytest_collection_modifyitems(config, items):
  ours = [wanted(i) for i in items]
  config.hook.pytest_deselected(items=[i for i, w in zip(items, ours) if not w])
  items[:] = [i for i, w in zip(items, ours) if w]

@pytest.fixture(autouse=True)
def null_device(request):
  if "null" not in request.path.relative_to(Path(__file__).parent).parts: return (yield)
  from tinygrad.helpers import Context
  with Context(DEV="NULL"): yield
