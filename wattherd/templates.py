"""Text from `templates/<role>/<name>.j2`: Jinja2 that refuses unknown names and says where they stood.

Owns the environment's rules and the words of its errors. Knows nothing of roles or inventories: the caller names the folders, the
template and the variables (a lazy mapping stays lazy: only names that a template uses are looked up).
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from wattherd import errors

if TYPE_CHECKING:
    import jinja2

_MISSING = re.compile(r"'(?P<name>[^']+)' is undefined|has no (?:attribute|element) '?(?P<attribute>[^']+)'?")


def render(folders: Sequence[Path], name: str, variables: Mapping[str, object], *, host: str) -> str:
    """The first of `folders` that has the template wins, so a project's own text goes before the packaged one."""
    import jinja2

    environment = _environment(tuple(folders))
    try:
        template = environment.get_template(name)
        names = ChainMap(cast("dict[str, object]", variables), environment.globals)
        # A shared parent is only asked by name; render() would copy, and so work out, every variable.
        return "".join(template.root_render_func(template.new_context(cast("dict[str, object]", names), shared=True)))
    except jinja2.TemplateNotFound as error:
        raise _not_found(str(error.name or name), name, folders, environment, host) from error
    except jinja2.TemplateSyntaxError as error:
        place = f"{_shown(error.filename or name, folders)}:{error.lineno}"
        raise errors.Problem("template-syntax", f"{place}: {error.message}", template=name, host=host) from error
    except jinja2.UndefinedError as error:
        raise _undefined(error, name, variables, folders, host) from error
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        place = _place(error, name, folders)
        raise errors.Problem("template-variable", f"{place}: cannot be rendered for {host}: {error}", template=name, host=host) from error


@functools.lru_cache(maxsize=16)
def _environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    """One per set of folders, so that fifty hosts share the compiled templates; a file that changed is read again."""
    import jinja2
    from jinja2 import runtime, utils

    class Context(runtime.Context):
        def get_all(self) -> dict[str, object]:
            """What an include or import sees: the names, not copied, so that a lazy mapping stays lazy there too."""
            return cast("dict[str, object]", ChainMap(self.vars, self.parent))

    class Template(jinja2.Template):
        def new_context(
            self,
            vars: dict[str, object] | None = None,  # noqa: A002 - Jinja's own name
            shared: bool = False,
            locals: Mapping[str, object] | None = None,  # noqa: A002 - Jinja's own name
        ) -> runtime.Context:
            """Jinja copies a shared parent to add locals; one layer more does the same without looking anything up."""
            if not (shared and locals):
                return super().new_context(vars, shared, locals)
            found = {name: value for name, value in locals.items() if value is not utils.missing}
            return super().new_context(cast("dict[str, object]", ChainMap(found, vars or {})), shared=True)

    class Environment(jinja2.Environment):
        context_class = Context
        template_class = Template

    return Environment(
        loader=jinja2.FileSystemLoader([str(folder) for folder in folders]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _not_found(missing: str, name: str, folders: Sequence[Path], environment: jinja2.Environment, host: str) -> errors.Problem:
    present = environment.list_templates()
    asked = f", which {name} includes," if missing != name else ""
    where = " or ".join(str(folder) for folder in folders) or "any folder"
    message = f"the template {missing}{asked} is not in {where}"
    return errors.Problem("template-missing", message, hint=_meant(missing, present) or _offer(present), template=missing, host=host)


def _undefined(error: Exception, name: str, variables: Mapping[str, object], folders: Sequence[Path], host: str) -> errors.Problem:
    place = _place(error, name, folders)
    match = _MISSING.search(str(error))
    if match is None:
        return errors.Problem("template-variable", f"{place}: {error} (for {host})", template=name, host=host)
    missing = match["name"] or match["attribute"]
    where = f"define '{missing}' in group_vars/all.yaml, or for this host in host_vars/{host}.yaml"
    hint = (_meant(missing, variables) if match["name"] else "") or where
    message = f"{place}: '{missing}' is not defined for {host}"
    return errors.Problem("template-variable", message, hint=hint, variable=missing, template=name, host=host)


def _place(error: Exception, name: str, folders: Sequence[Path]) -> str:
    """The innermost line of a template on the way to the error; Jinja leaves the template in its compiled code's globals."""
    found, traceback = _shown(name, folders), error.__traceback__
    while traceback is not None:
        template = traceback.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            found = f"{_shown(template.filename or template.name, folders)}:{template.get_corresponding_lineno(traceback.tb_lineno)}"
        traceback = traceback.tb_next
    return found


def _shown(file: str, folders: Sequence[Path]) -> str:
    """`templates/base/motd.j2`: from the folder's own name on."""
    for folder in folders:
        if Path(file).is_relative_to(folder):
            return str(Path(folder.name) / Path(file).relative_to(folder))
        if (folder / file).is_file():
            return str(Path(folder.name) / file)
    return file


def _meant(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(item) for item in found)}?" if found else ""


def _offer(present: Sequence[str]) -> str:
    return f"there are {', '.join(present[:6])}" if present else "no folder holds a template"
