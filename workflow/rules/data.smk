# Datasets as memory-mapped arrays.
def get_dataset_settings(wildcards):
    section = getattr(CONFIG.datasets, wildcards.dataset, None)
    return section.model_dump_json(exclude_none=True) if section else "{}"


rule prepare_dataset:
    input:
        environment=".environments/data/ready.json",
        script="scripts/prepare_dataset.py",
    output:
        "results/datasets/{dataset}/dataset.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    params:
        settings=get_dataset_settings,
    message:
        "dataset {wildcards.dataset}"
    shell:
        "PYTHONPATH=src .environments/data/bin/python {input.script} {wildcards.dataset}"
        " results/datasets/{wildcards.dataset} --settings {params.settings:q} --log {log}"
