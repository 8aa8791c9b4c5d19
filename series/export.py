"""export: the series for upstream, mails with the usual context and the own modules in the commits that bring them"""
import tempfile
from pathlib import Path
from series import Refused, apply, base, tree

BRANCH = "symbolic-multi"

def export(target:Path) -> None:
  if (target/".git").exists(): return branch(target)
  if target.exists() and any(target.iterdir()): raise Refused(f"{target} is neither empty nor a git checkout of tinygrad: name one or a new folder")
  with tempfile.TemporaryDirectory() as tmp:
    tree.init(repo:=Path(tmp))
    tree.fill(repo, "refs/heads/main", modules=True)
    target.mkdir(parents=True, exist_ok=True)
    tree.git(repo, "format-patch", "--quiet", "--always", "--zero-commit", "--full-index", "-o", str(target.resolve()), "base..main")
  print(f"{len(list(target.iterdir()))} mails in {target}, for git am on a checkout of tinygrad {base.BASE}")

def branch(repo:Path) -> None:
  """the series as a branch on the checkout's own commit; its files and its other branches stay as they are"""
  modes, theirs = {}, {}
  for line in tree.git(repo, "ls-tree", "-r", "HEAD", "tinygrad").splitlines():
    mode, _, blob, f = line.split(maxsplit=3)
    modes[f], theirs[f] = mode, blob
  if odd := sorted(f for f, data in base.find()[0].items() if theirs.get(f) != apply.blob(data)):
    raise Refused(f"{odd[0]} in {repo} is not the one of tinygrad {base.BASE}: git checkout v{base.BASE} there, then try again")
  if tree.git(repo, "branch", "--list", BRANCH): raise Refused(f"{repo} has a branch {BRANCH} already: git branch -D {BRANCH} there, then try again")
  tree.fill(repo, f"refs/heads/{BRANCH}", start=tree.git(repo, "rev-parse", "HEAD").strip(), modules=True, modes=modes)
  print(f"branch {BRANCH} in {repo}: git switch {BRANCH}, or git format-patch HEAD..{BRANCH}")
