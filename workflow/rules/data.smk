rule prepare_dataset:
    """Prepare a dataset as memory-mapped arrays."""
    input:
        environment=by_content("prepare_dataset", ".environments/data/ready.json"),
        script=ancient("scripts/prepare_dataset.py"),
        mark=get_mark("prepare_dataset"),
    output:
        "results/datasets/{dataset}/dataset.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    localrule: True
    params:
        settings=get_dataset_settings,
    message:
        "dataset {wildcards.dataset}"
    shell:
        "PYTHONPATH=src .environments/data/bin/python {input.script} {wildcards.dataset}"
        " results/datasets/{wildcards.dataset} --settings {params.settings:q} --log {log}"
