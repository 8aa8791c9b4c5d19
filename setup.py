import os, shutil, sys
from pathlib import Path
from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))
from series import ROOT, Refused, read, upto, version

os.umask(0o022)  # file modes go into the wheel, and the same input has to give the same wheel
WHERE = os.environ.get("SERIES_UPTO")  # a stage or a patch: the build stops there
EDITABLE = "editable_wheel" in sys.argv

class BuildPy(build_py):
  def run(self):
    if EDITABLE: return super().run()
    from series import apply
    files = apply.build(WHERE)  # all of it, before the first byte is written
    shutil.rmtree(Path(self.build_lib, "tinygrad"), ignore_errors=True)
    apply.write(files, Path(self.build_lib))
  def get_outputs(self, include_bytecode=1):
    if EDITABLE: return super().get_outputs(include_bytecode)
    return [str(f) for f in Path(self.build_lib, "tinygrad").rglob("*") if f.is_file()]
  def get_source_files(self):
    return [str(f.relative_to(ROOT)) for d in ("patches", "series", "tinygrad") for f in sorted((ROOT/d).rglob("*"))
            if f.is_file() and "__pycache__" not in f.parts]

class BdistWheel(bdist_wheel):
  def egg2dist(self, egginfo_path, distinfo_path):
    super().egg2dist(egginfo_path, distinfo_path)
    from series import base
    (Path(distinfo_path, "licenses")).mkdir(exist_ok=True)
    Path(distinfo_path, "licenses", "LICENSE").write_bytes(base.find()[1])
    meta = Path(distinfo_path, "METADATA")
    meta.write_text(meta.read_text().replace("License-Expression: MIT\n", "License-Expression: MIT\nLicense-File: LICENSE\n", 1))

try:
  upto(read(), WHERE)
  if EDITABLE and not (ROOT/"tree/tinygrad").is_dir(): raise Refused("tree/ is missing, an editable install runs from it: ./run tree, then try again")
  setup(version=version(WHERE), packages=["tinygrad"], cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel},
        package_dir={"tinygrad": "tree/tinygrad"} if EDITABLE else {})
except Refused as e: sys.exit(f"error: {e}")
