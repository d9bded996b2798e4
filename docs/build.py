"""Build the documentation site into `build/site`: `make docs`. Broken links fail the build, and no page fetches anything from elsewhere.

The pages are those of `docs/`, with README and its neighbours; the navigation is that of `docs/index.md`, so that there is one list of pages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_TABLE_LINK = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+\.md)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_FENCE_WORDS = re.compile(
    r"^(```\w+) .*$", re.MULTILINE
)  # for the tests of the guides; Python-Markdown takes such a fence for text
_REST_PAGE = "reference/rest-api.md"


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/site"
    with tempfile.TemporaryDirectory() as work:
        pages = Path(work).resolve() / "pages"
        gather(pages)
        if not build(pages, navigation(pages), target):
            sys.exit("docs: the site was not built; the lines above name the page and the link")
    sys.stdout.write(f"{target}/index.html\n")


def build(pages: Path, nav: list[Any], target: Path) -> bool:
    """Make the site of these pages; False: a page or a link is wrong, and has been named."""
    file = pages.parent / "mkdocs.yml"
    file.write_text(json.dumps(settings(pages, nav, target.resolve())), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(file)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)  # noqa: S603  ours
    if done.returncode != 0:
        sys.stderr.write("".join(line for line in done.stderr.splitlines(True) if not line.startswith("INFO")))
    return done.returncode == 0


def gather(pages: Path) -> None:
    """Put all pages into one folder, with links that lead on in it."""
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("*.py", "__pycache__", "changes"))
    for name in ROOT_PAGES:
        (pages / name).write_text((ROOT / name).read_text(encoding="utf-8").replace("](docs/", "]("), encoding="utf-8")
    (pages / "README.md").rename(pages / "readme.md")  # `README.md` would be the folder's index, which index.md is
    (pages / _REST_PAGE).write_text(rest_page(), encoding="utf-8")
    for page in pages.rglob("*.md"):
        parts = _FENCED.split(_FENCE_WORDS.sub(r"\1", page.read_text(encoding="utf-8")))
        parts[::2] = [_LINK.sub(lambda found, page=page: led(found, page, pages), part) for part in parts[::2]]
        page.write_text("".join(parts), encoding="utf-8")


def led(found: re.Match[str], page: Path, pages: Path) -> str:
    """Return a link as the site has it; what is in the checkout and no page becomes its name."""
    text, target = found.groups()
    if "://" in target or target.startswith(("#", "mailto:")):
        return found[0]
    name, mark, anchor = target.partition("#")
    if name.endswith("README.md") and (page.parent / name).resolve() == pages.parent / "README.md":
        name = name.replace("README.md", "readme.md")
    for root_page in ROOT_PAGES:
        if name.endswith(f"../{root_page}"):
            name = name.removeprefix("../").replace("README.md", "readme.md")
    if (page.parent / name).exists():
        return f"[{text}]({name}{mark}{anchor})"
    inside = (ROOT / "docs" / page.relative_to(pages)).parent / name
    return text if inside.resolve().exists() or (ROOT / name).exists() else found[0]


def settings(pages: Path, nav: list[Any], target: Path) -> dict[str, Any]:
    """Return the configuration of MkDocs."""
    return {
        "site_name": "iothub",
        "docs_dir": str(pages),
        "site_dir": str(target),
        "use_directory_urls": False,  # the site is read from files too
        "nav": nav,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.sections", "navigation.indexes", "content.code.copy", "toc.follow"],
            "palette": [
                {
                    "media": "(prefers-color-scheme: light)",
                    "scheme": "default",
                    "toggle": {"icon": "material/weather-night", "name": "Dark"},
                },
                {
                    "media": "(prefers-color-scheme: dark)",
                    "scheme": "slate",
                    "toggle": {"icon": "material/weather-sunny", "name": "Light"},
                },
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", "attr_list", {"toc": {"permalink": True}}],
        "extra": {"generator": False},
        "validation": {
            "omitted_files": "warn",
            "absolute_links": "warn",
            "unrecognized_links": "warn",
            "anchors": "warn",
        },
    }


def navigation(pages: Path) -> list[Any]:
    """Return the sections of the index with their pages, then the flows and the decisions."""
    found: list[Any] = [{"iothub": ["index.md", {"README": "readme.md"}]}]
    for title, rows in sections((pages / "index.md").read_text(encoding="utf-8")):
        found.append({title: rows})
    found[2]["I look something up"].append({"REST API, every path": _REST_PAGE})
    found.append({"Flows": [{titled(page): f"flows/{page.name}"} for page in sorted((pages / "flows").glob("*.md"))]})
    found.append(
        {
            "Decisions": [
                "adr/README.md",
                *({titled(page): f"adr/{page.name}"} for page in sorted((pages / "adr").glob("0*.md"))),
            ]
        }
    )
    found.append(
        {"Project": [{name.removesuffix(".md").capitalize(): name} for name in ("SECURITY.md", "CHANGELOG.md")]}
    )
    return found


def sections(index: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    for part in index.split("\n## ")[1:]:
        title, _, rest = part.partition("\n")
        rows = [found.groups() for line in rest.splitlines() if (found := _TABLE_LINK.match(line))]
        yield title, [{text: target} for text, target in rows if not target.startswith(("adr/", "changes/"))]


def titled(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


# --- the REST API


def rest_page() -> str:
    """Return every path of the OpenAPI document as a page of text: no script draws it."""
    from iothub.rest.app import make_paths, openapi_of  # the extra `admin`

    return "\n".join(rest_lines(openapi_of(make_paths(version("iothub"))))) + "\n"


def rest_lines(document: dict[str, Any]) -> Iterator[str]:
    yield "# REST API, every path"
    yield ""
    yield f"Version {document['info']['version']}; the same as `/api/v1/openapi.json`. [The guide](../guide/rest.md) says how it is used."
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            yield ""
            yield f"## {verb.upper()} {path}"
            yield ""
            yield operation.get("description") or operation.get("summary") or ""
            yield from _parameters(operation)
            yield from _body(operation)
            yield ""
            yield "| status | what |"
            yield "| --- | --- |"
            yield from (
                f"| {code} | {_cell(answer.get('description', ''))} |"
                for code, answer in operation["responses"].items()
            )
    yield ""
    yield "## Objects"
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        yield ""
        yield f"### {name}"
        yield ""
        yield _cell(schema.get("description", ""))
        if schema.get("properties"):
            yield ""
            yield "| field | kind | what |"
            yield "| --- | --- | --- |"
            required = schema.get("required", ())
            for field, kind in schema["properties"].items():
                star = " (required)" if field in required else ""
                yield f"| `{field}`{star} | {_kind(kind)} | {_cell(kind.get('description', ''))} |"


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    if operation.get("parameters"):
        yield ""
        yield "| parameter | in | kind | what |"
        yield "| --- | --- | --- | --- |"
        for each in operation["parameters"]:
            star = " (required)" if each.get("required") else ""
            yield f"| `{each['name']}`{star} | {each['in']} | {_kind(each.get('schema', {}))} | {_cell(each.get('description', ''))} |"


def _body(operation: dict[str, Any]) -> Iterator[str]:
    for form, content in operation.get("requestBody", {}).get("content", {}).items():
        yield ""
        yield f"Body (`{form}`): {_kind(content.get('schema', {}))}"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_kind(each) for each in schema[key])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return ", ".join(f"`{value}`" for value in schema["enum"]) if "enum" in schema else str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    main()
