"""What differs between two snapshots, for a reload."""

from dataclasses import dataclass

from nexus_gateway.settings.snapshot import Settings

_OTHER = (
    "engine",
    "routing",
    "turn",
    "state",
    "http",
    "log",
    "expose",
    "results",
    "pins",
    "feedback",
    "cache_dir",
)


@dataclass(frozen=True, slots=True)
class SettingsDiff:
    """All that a reload acts on; false where nothing differs.

    Attributes:
        servers_changed: any of their settings; compare `spec` to see whether to connect anew.
        other_changed: names of the other sections that differ.
    """

    servers_added: tuple[str, ...] = ()
    servers_changed: tuple[str, ...] = ()
    servers_removed: tuple[str, ...] = ()
    models_changed: bool = False
    other_changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        servers = self.servers_added or self.servers_changed or self.servers_removed
        return bool(servers or self.models_changed or self.other_changed)


def diff(old: Settings, new: Settings) -> SettingsDiff:
    """What has to be done to go from `old` to `new`; names are sorted."""
    kept = old.servers.keys() & new.servers.keys()
    return SettingsDiff(
        servers_added=tuple(sorted(new.servers.keys() - kept)),
        servers_changed=tuple(sorted(name for name in kept if old.servers[name] != new.servers[name])),
        servers_removed=tuple(sorted(old.servers.keys() - kept)),
        models_changed=old.models != new.models,
        other_changed=tuple(name for name in _OTHER if getattr(old, name) != getattr(new, name)),
    )
