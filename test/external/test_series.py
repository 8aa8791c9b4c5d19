"""the tool behind ./run, on a small series of its own in a scratch copy of the repository"""
import difflib, hashlib, os, re, shutil, subprocess, sys, tempfile, unittest, zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT/".upstream"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}

def blob(data:bytes|None) -> str: return "0"*40 if data is None else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

def mail(subject:str, stage:str, changes:dict[str, tuple[bytes|None, bytes|None]], brings:str="") -> bytes:
  """a patch as ./run save writes it; no text where a file is deleted"""
  out = [f"From {'0'*40} Mon Sep 17 00:00:00 2001\nFrom: A Tester <tester@localhost>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\nSubject: {subject}\n\n"
         f"Stage: {stage}\n" + (f"Brings: {brings}\n" if brings else "") + "\n"]
  for f, (old, new) in sorted(changes.items()):
    out.append(f"diff --git a/{f} b/{f}\n" + ("" if old and new else f"{'new' if new else 'deleted'} file mode 100644\n"))
    out.append(f"index {blob(old)}..{blob(new)}{' 100644' if old and new else ''}\n")
    if new is None: continue
    before, after = ((x or b"").decode().splitlines(True) for x in (old, new))
    diff = difflib.unified_diff(before, after, f"a/{f}" if old else "/dev/null", f"b/{f}", n=1)
    for line in diff: out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
  return "".join(out).encode()

@unittest.skipUnless(BASE.is_dir(), "needs .upstream/, which ./run makes")
class Scratch(unittest.TestCase):
  def setUp(self):
    self.tmp = tempfile.TemporaryDirectory()
    self.addCleanup(self.tmp.cleanup)
    self.root = Path(self.tmp.name, "repo")
    for d in ("patches", "tinygrad"): (self.root/d).mkdir(parents=True)
    for f in ("run", "setup.py", "pyproject.toml"): shutil.copy(ROOT/f, self.root)
    shutil.copytree(ROOT/"series", self.root/"series", ignore=shutil.ignore_patterns("__pycache__"))
    (self.root/"README.md").write_text("# a series\n")
    (self.root/".upstream").symlink_to(BASE)
    (self.root/".venv").symlink_to(sys.prefix)
    helpers = (BASE/"tinygrad/helpers.py").read_bytes()
    line = next(l for l in helpers.splitlines(True)[50:] if l.strip())
    self.one = helpers.replace(line, b"FIRST = 1\n" + line, 1)
    two = (BASE/"tinygrad/__init__.py").read_bytes().rstrip(b"\n") + b"\nfrom tinygrad.added import SECOND"
    (self.root/"tinygrad/added.py").write_text("SECOND = 2\n")
    dsp = (BASE/"tinygrad/runtime/ops_dsp.py").read_bytes()
    self.put("0001-helpers-first.patch", mail("helpers: first", "early", {"tinygrad/helpers.py": (helpers, self.one)}))
    self.put("0002-init-second.patch", mail("init: second", "0", {"tinygrad/__init__.py": ((BASE/"tinygrad/__init__.py").read_bytes(), two)},
                                            "tinygrad/added.py"))
    self.put("0003-runtime-drop-one.patch", mail("runtime: drop one", "0", {"tinygrad/runtime/ops_dsp.py": (dsp, None), "tinygrad/fresh.py":
                                                                           (None, b"THIRD = 3\r\n")}))
    head = re.search(r'^HEAD = """(.*?)"""', (ROOT/"series/__init__.py").read_text(), re.S | re.M)
    assert head is not None
    self.put("series", head[1].encode() + b"# stage early\n0001-helpers-first.patch\n# stage 0\n"
             b"0002-init-second.patch  # brings tinygrad/added.py\n0003-runtime-drop-one.patch\n")

  def put(self, name, data): (self.root/"patches"/name).write_bytes(data)
  def edit(self, name, old, new): self.put(name, (self.root/"patches"/name).read_bytes().replace(old, new))
  def patches(self): return {f.name: f.read_bytes() for f in (self.root/"patches").iterdir()}

  def run_(self, *cmd, rc=0, **env):
    env = {k: v for k, v in os.environ.items() if k not in ("SERIES_UPTO", "SERIES_WITHOUT", "PYTHONPATH", "SYMBOLIC_MULTI")} | env
    done = subprocess.run(cmd, cwd=self.root, env=env, capture_output=True, text=True)
    self.assertEqual(done.returncode, rc, done.stdout + done.stderr)
    return done
  def tool(self, *args, **kwargs): return self.run_(sys.executable, str(self.root/"series"), *args, **kwargs)
  def refused(self, *args, says, cmd=None, **env):
    """one line, which holds every word of says"""
    err = (self.run_(*cmd, rc=1, **env) if cmd else self.tool(*args, rc=1, **env)).stderr.strip()
    lines = [l for l in err.splitlines() if not l.startswith("-- ")]
    self.assertEqual(len(lines), 1, err)
    self.assertTrue(lines[0].startswith("error: "), err)
    for word in says: self.assertIn(word, lines[0])
  def hook(self, name, out, rc=0, **env):
    """a build as pip asks for it, without pip's own words around it"""
    return self.run_(sys.executable, "-c", f"from setuptools.build_meta import {name}; {name}({str(out)!r})", rc=rc, **env)
  def wheel(self, out, **env):
    self.hook("build_wheel", out, **env)
    return next(Path(out).glob("*.whl"))

class TestBuild(Scratch):
  def test_each_stage(self):
    def built(*stage):
      self.tool("build", str(out:=self.root/"out"), *stage)
      return {str(f.relative_to(out)): f.read_bytes() for f in out.rglob("*") if f.is_file()}
    base = {str(f.relative_to(BASE)): f.read_bytes() for f in (BASE/"tinygrad").rglob("*") if f.is_file() and "__pycache__" not in f.parts}
    self.assertEqual(built("base"), base)
    early = base | {"tinygrad/helpers.py": self.one}
    self.assertEqual(built("early"), early)
    self.assertEqual(built("helpers-first"), early)
    second = built("0002-init-second")
    self.assertEqual(sorted(second.keys() - base.keys()), ["tinygrad/added.py"])
    self.assertTrue(second["tinygrad/__init__.py"].endswith(b"SECOND"))
    whole = built()
    self.assertEqual(whole, built("stage0"))
    self.assertEqual(whole["tinygrad/fresh.py"], b"THIRD = 3\r\n")
    self.assertEqual(base.keys() - whole.keys(), {"tinygrad/runtime/ops_dsp.py"})

  def test_wheel_is_the_same_twice_and_has_the_license(self):
    env = {"SOURCE_DATE_EPOCH": "1700000000"}
    a, b = self.wheel(self.root/"a", **env), self.wheel(self.root/"b", **env)
    self.hook("build_sdist", self.root/"c")
    with tempfile.TemporaryDirectory() as d:
      shutil.unpack_archive(next((self.root/"c").glob("*.tar.gz")), d)
      (sdist:=next(Path(d).iterdir())).joinpath(".upstream").symlink_to(BASE)
      old, self.root = self.root, sdist
      c = self.wheel(old/"d", **env)
      self.root = old
    self.assertEqual(a.read_bytes(), b.read_bytes())
    self.assertEqual(a.read_bytes(), c.read_bytes())
    with zipfile.ZipFile(a) as z:
      meta, = (n for n in z.namelist() if n.endswith("dist-info/METADATA"))
      self.assertIn("License-File: LICENSE\n", z.read(meta).decode())
      self.assertEqual(z.read(meta.replace("METADATA", "licenses/LICENSE")), next(BASE.glob("*.dist-info/licenses/LICENSE")).read_bytes())
      self.assertEqual(z.read("tinygrad/added.py"), b"SECOND = 2\n")
      self.assertFalse([n for n in z.namelist() if "egg-info" in n])

  def test_version_names_the_stage(self):
    names = [self.wheel(self.root/f"w{i}", **({"SERIES_UPTO": s} if s else {})).name for i, s in enumerate(["", "stage0", "early", "base"])]
    first = re.fullmatch(r"(tinygrad-0\.14\.0\+symbolicmulti\.\d+)-py3-none-any\.whl", names[0])
    assert first is not None
    self.assertEqual(names[1:], [f"{first[1]}.{s}-py3-none-any.whl" for s in ("stage0", "early", "base")])

class TestBadInput(Scratch):
  def test_other_base(self):
    (self.root/".upstream").unlink()
    (self.root/"site/tinygrad-0.13.0.dist-info").mkdir(parents=True)
    (self.root/"site/tinygrad-0.13.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: tinygrad\nVersion: 0.13.0\n")
    err = self.hook("build_wheel", self.root/"out", rc=1, PYTHONPATH=str(self.root/"site")).stderr.strip().splitlines()[-1]
    self.assertRegex(err, r"^error: the patches need tinygrad 0\.14\.0, found .*0\.13\.0.*pip install tinygrad===0\.14\.0")
    self.assertFalse(list(self.root.glob("build/**/*.py")) + list(self.root.glob("out/*.whl")))

  def test_altered_base(self):
    (self.root/".upstream").unlink()
    shutil.copytree(BASE, self.root/".upstream")
    with open(self.root/".upstream/tinygrad/dtype.py", "a") as f: f.write("# more\n")
    self.refused("build", "out", says=["tinygrad/dtype.py", "0.14.0", "delete .upstream"])
    (self.root/".upstream/tinygrad/dtype.py").unlink()
    self.refused("build", "out", says=["tinygrad/dtype.py"])
    shutil.copy(BASE/"tinygrad/dtype.py", self.root/".upstream/tinygrad")
    (self.root/".upstream/tinygrad/stray.py").write_text("")
    self.refused("build", "out", says=["tinygrad/stray.py"])
    self.assertFalse((self.root/"out").exists())

  def test_edited_patch(self):
    self.edit("0001-helpers-first.patch", b"+FIRST = 1", b"+FIRST = 9")
    self.refused("build", "out", says=["patches/0001-helpers-first.patch", "tinygrad/helpers.py", "edited", "./run save"])
    self.assertFalse((self.root/"out").exists())

  def test_patch_that_does_not_fit(self):
    old = (BASE/"tinygrad/helpers.py").read_bytes()
    self.put("0001-helpers-first.patch", mail("helpers: first", "early", {"tinygrad/helpers.py": (old + b"# other\n", self.one)}))
    self.refused("build", "out", says=["patches/0001-helpers-first.patch", "tinygrad/helpers.py"])
    # the ids are right, the text is not
    self.put("0001-helpers-first.patch", mail("helpers: first", "early", {"tinygrad/helpers.py": (old, self.one)}).replace(b"\n@@ -", b"\n@@ -1"))
    self.refused("build", "out", says=["patches/0001-helpers-first.patch", "tinygrad/helpers.py"])
    self.put("0001-helpers-first.patch", mail("helpers: first", "early", {"tinygrad/helpers.py": (old, self.one)})[:-9])
    self.refused("build", "out", says=["patches/0001-helpers-first.patch"])

  def test_what_a_patch_may_not_do(self):
    for bad in (b"old mode 100644\nnew mode 100755\n", b"similarity index 100%\nrename from a\nrename to b\n", b"GIT binary patch\n"):
      self.put("0003-runtime-drop-one.patch", b"Subject: x\n\n\ndiff --git a/tinygrad/py.typed b/tinygrad/py.typed\n" + bad)
      self.refused("build", "out", says=["patches/0003-runtime-drop-one.patch"])

  def test_deletion_of_another_text(self):
    self.edit("0003-runtime-drop-one.patch", b"deleted file mode 100644\nindex ", b"deleted file mode 100644\nindex 1")
    self.refused("build", "out", says=["patches/0003-runtime-drop-one.patch"])

  def test_missing_and_stray_patch(self):
    (self.root/"patches/0001-helpers-first.patch").rename(self.root/"patches/0009-other.patch")
    self.refused("build", "out", says=["patches/0001-helpers-first.patch is missing"])
    self.edit("series", b"0001-helpers-first.patch\n", b"")
    self.refused("build", "out", says=["patches/0009-other.patch", "patches/series"])
    self.edit("series", b"# stage 0\n", b"0002 what\n")
    self.refused("build", "out", says=["patches/series:4", "0002 what"])
    (self.root/"patches/series").unlink()
    self.refused("build", "out", says=["patches/series is missing"])

  def test_missing_module(self):
    (self.root/"tinygrad/added.py").unlink()
    self.refused("build", "out", says=["tinygrad/added.py is missing", "patches/0002-init-second.patch"])
    self.assertFalse((self.root/"out").exists())

  def test_unknown_stage(self): self.refused("build", "out", "stage7", says=["stage7", "base, early, 0"])

  def test_missing_tree(self):
    self.refused("save", says=["tree/ is missing", "./run tree"])
    err = self.hook("build_editable", self.root/"out", rc=1).stderr.strip().splitlines()[-1]
    self.assertEqual(err, "error: tree/ is missing, an editable install runs from it: ./run tree, then try again")

  def test_old_python(self):
    (old:=self.root/"bin/python3").parent.mkdir()
    old.write_text('#!/bin/sh\necho "3.9 is too old"\n')
    old.chmod(0o755)
    self.refused(cmd=["./run", "job"], says=["python3", "3.9", "3.11", "PYTHON"], PATH=f"{old.parent}:/usr/bin:/bin")
    self.refused(cmd=["./run", "job"], says=["no-such-python"], PYTHON="no-such-python")

  def test_no_compiler_and_no_network(self):
    (self.root/".venv").unlink()
    (bin_:=self.root/"bin").mkdir()
    for f in ("sh", "dirname", "env"): (bin_/f).symlink_to(str(shutil.which(f)))
    self.refused(cmd=["./run", "job"], says=["no C compiler", "ziglang==0.17.1", "install clang, or set CC"],
                 PATH=str(bin_), PYTHON=sys.executable, CC="", **OFFLINE)
    (self.root/".upstream").unlink()
    self.refused(cmd=["./run", "job"], says=["could not be downloaded", "PIP_FIND_LINKS"], PATH=str(bin_), PYTHON=sys.executable, CC="cc", **OFFLINE)
    self.assertFalse(list(self.root.glob(".upstream*")))

  def test_no_git(self):
    self.refused("check", says=["git is not there"], PATH=str(self.root))
    self.refused("tree", says=["git is not there"], PATH=str(self.root))
    self.assertFalse(list(self.root.glob("tree*")))

  def test_words_that_run_does_not_know(self):
    self.assertIn("./run save", self.tool().stdout)
    self.tool("sav", rc=2)
    self.refused("save", "now", says=["./run save"])
    self.refused("upstream", str(self.root), says=["not a checkout of tinygrad"])

@unittest.skipUnless(shutil.which("git"), "needs git")
class TestTree(Scratch):
  def git(self, *args, where="tree"):
    return self.run_("git", "-C", str(self.root/where), "-c", "user.name=A Tester", "-c", "user.email=tester@localhost", *args).stdout.strip()
  def write(self, f, text): (self.root/"tree"/f).write_text(text)

  def test_tree_and_save_are_each_others_inverse(self):
    before = self.patches()
    self.tool("tree")
    first = self.git("rev-parse", "HEAD")
    self.tool("save")
    self.assertEqual(self.patches(), before)
    self.tool("check")
    self.tool("tree", "--force")
    self.assertEqual(self.git("rev-parse", "HEAD"), first)
    self.assertEqual(self.git("status", "--porcelain"), "")
    self.assertTrue((self.root/"tree/tinygrad/added.py").is_symlink())
    subjects = self.git("log", "--format=%s", "--reverse").splitlines()
    self.assertEqual(subjects, ["tinygrad 0.14.0", "helpers: first", "init: second", "runtime: drop one"])

  def test_new_commit(self):
    self.tool("tree")
    self.write("tinygrad/fresh.py", "THIRD = 4")
    (self.root/"tinygrad/more.py").write_text("")
    self.git("commit", "-qam", "fresh: ein größeres\n\nwhy\n\nStage: 1\nBrings: tinygrad/more.py")
    self.tool("save")
    self.assertTrue((self.root/"patches/series").read_text().endswith("# stage 1\n0004-fresh-ein-gr-eres.patch  # brings tinygrad/more.py\n"))
    self.tool("check")
    before = self.patches()
    self.tool("tree", "--force")
    self.tool("save")
    self.assertEqual(self.patches(), before)
    self.assertEqual(self.git("log", "-1", "--format=%s"), "fresh: ein größeres")

  def test_work_is_not_thrown_away(self):
    self.tool("tree")
    self.write("tinygrad/fresh.py", "THIRD = 4\n")
    for cmd, says in (("tree", "--force"), ("save", "in no commit")): self.refused(cmd, says=[says])
    self.git("commit", "-qam", "fresh: four")
    self.refused("tree", says=["not in patches/", "./run save"])
    self.assertEqual((self.root/"tree/tinygrad/fresh.py").read_text(), "THIRD = 4\n")
    self.edit("0001-helpers-first.patch", b"Stage: early", b"Why.\n\nStage: early")
    self.refused("save", says=["patches/ has changed", "--force"])
    self.tool("tree", "--force")
    self.assertEqual((self.root/"tree/tinygrad/fresh.py").read_text(), "THIRD = 3\n")

  def test_save_refuses_what_it_can_not_write(self):
    before = self.patches()
    for text, says in (("x: y\n\n--- a line", "reads as a diff"), ("x: y\n\nStage: early", "opened twice"),
                       ("init: second", "another patch is named"), ("x: y\n\nBrings: tinygrad/added.py", "2 patches bring it"),
                       ("x: y\n\nBrings: tinygrad/none.py", "is missing")):
      self.tool("tree", "--force")
      self.write("tinygrad/fresh.py", "THIRD = 4\n")
      self.git("commit", "-qam", text)
      self.refused("save", says=[says])
      self.assertEqual(self.patches(), before)
    self.tool("tree", "--force")
    (self.root/"tree/tinygrad/fresh.py").chmod(0o755)
    self.git("commit", "-qam", "x: mode")
    self.refused("save", says=["mode"])
    self.assertEqual(self.patches(), before)

  def test_check_sees_what_save_would_change(self):
    self.edit("series", b"# stage early", b"# stage other")
    self.refused("check", says=["patches/series"])
    self.edit("series", b"# stage other", b"# stage early")
    self.put("0001-helpers-first.patch", self.patches()["0001-helpers-first.patch"].replace(b" 1 Jan", b" 01 Jan"))
    self.refused("check", says=["patches/0001-helpers-first.patch"])
    (self.root/"tinygrad/stray.py").write_text("")
    self.refused("check", says=["tinygrad/stray.py", "Brings: tinygrad/stray.py"])

  def test_export(self):
    (theirs:=self.root/"theirs").mkdir()
    shutil.copytree(BASE/"tinygrad", theirs/"tinygrad", ignore=shutil.ignore_patterns("__pycache__"))
    (theirs/"README").write_text("upstream has more than its package\n")
    (theirs/"tinygrad/helpers.py").chmod(0o755)
    self.git("init", "-q", where="theirs")
    self.git("config", "core.autocrlf", "false", where="theirs")
    self.git("add", "-A", where="theirs")
    self.git("commit", "-qm", "the release", where="theirs")
    self.tool("build", str(built:=self.root/"built"))
    self.tool("export", str(mails:=self.root/"mails"))
    self.assertEqual(len(list(mails.iterdir())), 3)
    self.assertIn("+SECOND = 2\n", next(mails.glob("0002*")).read_text())
    self.git("am", "-q", "--keep-cr", *map(str, sorted(mails.iterdir())), where="theirs")
    got = {str(f.relative_to(theirs)): f.read_bytes() for f in (theirs/"tinygrad").rglob("*") if f.is_file()}
    self.assertEqual(got, {str(f.relative_to(built)): f.read_bytes() for f in (built/"tinygrad").rglob("*") if f.is_file()})
    self.refused("export", "mails", says=["mails"])
    # the same as a branch
    am = self.git("rev-parse", "HEAD^{tree}", where="theirs")
    self.refused("export", "theirs", says=["not the one of tinygrad 0.14.0"])
    self.git("reset", "-q", "--hard", "HEAD~3", where="theirs")
    self.tool("export", "theirs")
    self.assertEqual(self.git("rev-parse", "symbolic-multi^{tree}", where="theirs"), am)
    self.assertEqual(self.git("status", "--porcelain", where="theirs"), "")
    self.refused("export", "theirs", says=["branch symbolic-multi already"])

class TestSuite(Scratch):
  def setUp(self):
    super().setUp()
    (self.root/"test/unit").mkdir(parents=True)
    shutil.copy(ROOT/"test/conftest.py", self.root/"test")
    (self.root/"test/unit/test_a.py").write_text("""import pytest
@pytest.mark.patch("helpers-first")
def test_first():
  from tinygrad import helpers
  assert helpers.FIRST == 1
@pytest.mark.patch("init-second")
def test_second():
  import tinygrad
@pytest.mark.needs("stage0")
def test_third():
  from tinygrad.fresh import THIRD
def test_always(): pass
""")
    (self.root/"test/unit/test_b.py").write_text(
      'import pytest\nfrom tinygrad.added import SECOND\npytestmark = pytest.mark.patch("init-second")\ndef test_module(): assert SECOND == 2\n')

  def suite(self, where, rc=0):
    self.tool("build", str(self.root/"out"), *([where] if where else []))
    done = self.run_(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test/unit", rc=rc,
                     PYTHONPATH=str(self.root/"out"), SERIES_UPTO=where)
    return done.stdout + done.stderr

  def test_marks(self):
    for where, says in (("", "5 passed"), ("base", "1 passed, 3 deselected"), ("early", "2 passed, 2 deselected")):
      self.assertIn(says, self.suite(where))
    (self.root/"test/unit/test_a.py").write_text('import pytest\n@pytest.mark.needs("nothing")\ndef test_a(): pass\n')
    self.assertIn("no stage or patch is named nothing", self.suite("", rc=4))

  def test_mutate(self):
    err = self.tool("mutate", rc=1)
    self.assertIn("helpers-first: fails without it", err.stderr)
    self.assertIn("init-second: fails without it", err.stderr)  # test_module's import fails
    self.assertIn("runtime-drop-one: NO TEST IS MARKED WITH IT", err.stderr)
    self.assertTrue(err.stdout.endswith("1 patches without a test that fails: runtime-drop-one\n"), err.stdout)

  def test_upstream(self):
    (theirs:=self.root/"theirs/test/unit").mkdir(parents=True)
    for d in ("extra", "examples", "tinygrad"): (self.root/"theirs"/d).mkdir()
    (self.root/"theirs/tinygrad/__init__.py").write_text("raise Exception('not this one')\n")
    for f in (theirs.parent, theirs): (f/"__init__.py").write_text("")
    (theirs/"test_a.py").write_text("""import unittest
class TestA(unittest.TestCase):
  def test_new(self): import tinygrad.fresh
  def test_old(self): import tinygrad.runtime.ops_dsp
  def test_same(self): import tinygrad
  def test_broken(self): self.fail()
""")
    cmd = (sys.executable, "-c", "import sys; from pathlib import Path; from series import upstream; "
           "sys.exit(upstream.compare(Path('theirs').resolve(), ['unit']))")
    for _ in range(2):  # the second time from its cache
      said = self.run_(*cmd, rc=1, CACHEDB=str(self.root/"c.db")).stdout.splitlines()
      self.assertEqual(said[:-1], ["unit, SYMBOLIC_MULTI=unset: test/unit/test_a.py::TestA::test_new: failed -> passed",
                                   "unit, SYMBOLIC_MULTI=unset: test/unit/test_a.py::TestA::test_old: passed -> failed"])
      self.assertIn("2 passed, 2 failed, 0 error, 0 skipped; beside unpatched 0.14.0: 1 newly failing, 1 other differences, 0 that", said[-1])

del Scratch  # a base, not a test

if __name__ == "__main__":
  unittest.main()
