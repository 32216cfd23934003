"""Configuration: the gateway's own `nexus.toml`, and hosts' `mcpServers` files beside it.

`load_settings` gives an immutable snapshot; `diff` of two snapshots is what a reload has to do. Knows files
and their rules. Does not know how anything that it configures works.
"""

from adapters.hosts.mcp_servers import ConfigProblem
from nexus_gateway.settings.diff import SettingsDiff, diff
from nexus_gateway.settings.fields import ConfirmPolicy
from nexus_gateway.settings.load import LoadedSettings, default_config_file, load_settings
from nexus_gateway.settings.model_sections import (
    PRESETS,
    EngineSettings,
    ModelPreset,
    ModelSettings,
    StateSettings,
)
from nexus_gateway.settings.snapshot import (
    ExposeSettings,
    FeedbackSettings,
    HttpSettings,
    LogSettings,
    PinSettings,
    RerankBy,
    ResultSettings,
    RoutingSettings,
    ServerSettings,
    Settings,
    ToolSettings,
    TurnSettings,
)
from nexus_gateway.settings.toml_file import SettingsError

__all__ = [
    "PRESETS",
    "ConfigProblem",
    "ConfirmPolicy",
    "EngineSettings",
    "ExposeSettings",
    "FeedbackSettings",
    "HttpSettings",
    "LoadedSettings",
    "LogSettings",
    "ModelPreset",
    "ModelSettings",
    "PinSettings",
    "RerankBy",
    "ResultSettings",
    "RoutingSettings",
    "ServerSettings",
    "Settings",
    "SettingsDiff",
    "SettingsError",
    "StateSettings",
    "ToolSettings",
    "TurnSettings",
    "default_config_file",
    "diff",
    "load_settings",
]
