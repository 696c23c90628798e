"""A validation report as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment

from hw_tests.registered import HEAD

_TEMPLATE = """{% macro table(rows) %}<table>
<tr><th></th>{% for name in machines %}<th>{{ name }}</th>{% endfor %}</tr>
{% for name, values in rows %}<tr><th>{{ name }}</th>
{% for value in values %}<td>{{ 'none' if value is none else value }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endmacro %}
<!doctype html><html lang="en"><meta charset="utf-8">
<title>Hardware validation</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #bbb; padding: .25em .6em; text-align: left; vertical-align: top }
td { overflow-wrap: anywhere }
pre { white-space: pre-wrap; margin: 0; max-height: 20em; overflow: auto }
.verdict { font-weight: bold; padding: .5em; border-left: .4em solid #c33 }
.verdict.good { border-color: #2a7 }
</style>
<h1>Hardware validation</h1>
<p class="verdict{{ ' good' if d.passed }}">{{ d.verdict }}</p>
<p>Arm <b>{{ d.arm }}</b>: {{ d.note }}.</p>
{% for caveat in d.caveats %}<p>Caveat: {{ caveat }}.</p>{% endfor %}
{% for problem in d.problems %}<pre>{{ problem }}</pre>{% endfor %}
{% for how in ('failed', 'passed', 'not run') %}
<h2>{{ how | capitalize }}: {{ d.counts[how] }}</h2>
<table><tr><th>where</th><th>test</th><th>seconds</th><th></th></tr>
{% for test in d.tests if test.how == how %}<tr><td>{{ test.where }}</td><td>{{ test.name }}</td>
<td>{{ '%.1f' | format(test.seconds) }}</td><td><pre>{{ test.reason }}</pre></td></tr>
{% endfor %}</table>{% endfor %}
{% if d.registered %}<h2>Registered caches</h2><pre>{{ d.registered.said }}</pre>
<table><tr>{% for name in head %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in d.registered.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>{% endif %}
<h2>Hosts</h2>
{{ table(facts) }}
<details><summary>Every package</summary>{{ table(installed) }}</details>
{% for role, facts in d.hosts.items() if facts.preflight %}
<h2>Preflight of {{ role }}, {{ facts.host }}</h2>
<table><tr><th>check</th><th></th><th>found</th><th>needed</th></tr>
{% for check in facts.preflight %}<tr><td>{{ check.name }}</td>
<td>{{ 'ok' if check.ok else 'MISSING' }}</td><td>{{ check.found }}</td><td>{{ check.needed }}</td>
</tr>{% endfor %}</table>{% endfor %}
<h2>Settings</h2>
<table>{% for name, value in d.settings.items() %}<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}</table>
<h2>Files</h2>
<p><code>sha256sum -c SHA256SUMS</code> checks them.</p>
<table><tr><td>report.json</td><td><code>{{ digest }}</code></td></tr>
{% for name, hash in d.files.items() %}<tr><td>{{ name }}</td><td><code>{{ hash }}</code></td></tr>
{% endfor %}</table></html>
"""


def page(document: Mapping[str, Any], digest: str) -> str:
    """The whole report; ``digest`` is the hash of its JSON form."""
    machines = {**document["hosts"], "the tests": document["tests_on"]}
    template = Environment(autoescape=True).from_string(_TEMPLATE)
    return template.render(
        d=document,
        digest=digest,
        head=HEAD,
        machines=list(machines),
        facts=_rows([_flat(facts) for facts in machines.values()]),
        installed=_rows([facts.get("installed", {}) for facts in machines.values()]),
    )


def _rows(columns: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """One for each name that any column has."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name) for column in columns]) for name in names]


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping) and key != "installed":
            rows |= {f"{key}: {name}": each for name, each in value.items()}
        elif key not in ("preflight", "installed"):
            rows[key] = value
    return rows
