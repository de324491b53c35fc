"""Build the site: the documents as they are, with search, navigation and an API reference.

    python docs/site.py          # writes build/site; a warning, such as a link to nowhere, is an error

The documents are copied to build/documents at their places in the repository, so that the same
relative links work here and there. The API reference is made of the packages' exported names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
PAGES = BUILD / "documents"
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "NOTICE")
NAVIGATION = {
    "Start": [
        "README.md",
        "docs/index.md",
        "docs/getting-started.md",
        "docs/commands.md",
        "docs/python.md",
        "docs/questions.md",
    ],
    "Guide": [
        "docs/models.md",
        "docs/backbones.md",
        "docs/data.md",
        "docs/training.md",
        "docs/recipes.md",
        "docs/localization.md",
        "docs/metric.md",
        "docs/search.md",
        "docs/scale.md",
        "docs/page.md",
    ],
    "Evidence": ["docs/papers.md", "docs/results.md", "docs/benchmarks.md", "docs/citations.md"],
    "Development": [
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/notation.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ],
}
EXTENSIONS = [
    "tables",
    "toc",
    "attr_list",
    "md_in_html",
    "pymdownx.highlight",
    "pymdownx.superfences",
]
REFERENCE = {
    "show_root_heading": True,
    "show_root_full_path": True,
    "heading_level": 2,
    "show_source": True,
    "separate_signature": True,
    "line_length": 100,
    "merge_init_into_class": True,
}


def main() -> None:
    shutil.rmtree(BUILD / "documents", ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES / "docs", ignore=shutil.ignore_patterns("*.py", "results"))
    for name in FILES:
        shutil.copy(ROOT / name, PAGES / name)
    settings = {
        "site_name": "Cenote",
        "docs_dir": str(PAGES.relative_to(BUILD)),
        "site_dir": "site",
        "strict": True,
        "theme": {"font": False, "features": ["navigation.tabs", "content.code.copy"]},
        "markdown_extensions": EXTENSIONS,
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "handlers": {"python": {"paths": [str(ROOT)], "options": REFERENCE}}
                }
            },
        ],
        "nav": navigation(write_reference()),
    }
    (BUILD / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
    build = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    subprocess.run([*build, "-f", str(BUILD / "mkdocs.yml")], check=True)
    print(f"the site: {BUILD / 'site' / 'index.html'}")


def write_reference() -> list[str]:
    """Write one page for each package with the names that it exports."""
    exported = json.loads((ROOT / "tests" / "public_names.json").read_text("utf-8"))
    pages = []
    for package, names in exported.items():
        page = PAGES / "reference" / f"{package}.md"
        page.parent.mkdir(exist_ok=True)
        entries = [f"::: {package}.{name}" for name in names if not name.startswith("__")]
        page.write_text("\n\n".join([f"# {package}", *entries]), "utf-8")
        pages.append(f"reference/{page.name}")
    return pages


def navigation(reference: list[str]) -> list[dict[str, list[str]]]:
    """Return the tabs of the site; the how-to guides and pools are all files of their folders."""
    guides = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.glob("docs/how-to/*.md"))
    pools = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.glob("docs/pools/*.md"))
    pools.remove("docs/pools/index.md")
    pools = ["docs/pools/index.md", "docs/landscape.md", *pools]
    tabs = {**NAVIGATION, "How to": guides, "Pools": pools, "Reference": reference}
    order = ("Start", "How to", "Guide", "Pools", "Evidence", "Reference", "Development")
    return [{title: tabs[title]} for title in order]


if __name__ == "__main__":
    main()
