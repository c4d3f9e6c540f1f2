"""The settings, as others read them."""

import json

from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry


def test_the_catalog_of_plugins_can_write_down_every_setting() -> None:
    """As JSON, all but the type; it drops the page of a plugin whose settings it cannot write."""
    plugin = ExecutorPluginRegistry().get_plugin("submitit")
    settings = {setting.pop("name"): setting for setting in plugin.get_settings_info()}
    for setting in settings.values():
        del setting["type"]
    assert json.loads(json.dumps(settings))["folder"]["default"] == ".snakemake/submitit"
