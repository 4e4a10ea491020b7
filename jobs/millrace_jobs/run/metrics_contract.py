"""Everything that a job exports; each series has the label ``query``."""

from __future__ import annotations

from typing import Literal

from millrace_api.model.deployment import Algorithm
from millrace_api.model.memory_use import MemoryPart
from millrace_jobs.pipeline.progress import STEPS
from millrace_jobs.run.gc_times import ROLES
from millrace_jobs.run.store_traffic import CLIENTS
from millrace_jobs.selection.switch import REASONS
from millrace_jobs.stores.requests import DIRECTIONS, REQUESTS
from millrace_support.metric import QUERY, Label, Metric, Unit

# The buckets of batches cover intervals from 0.1 s to several minutes; neighbors differ by at most a factor of 2.
_BATCH_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600)
_TASK_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)
_WRITE_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


_STAGE = Label("stage", ("route", "combine"))
_TABLE = Label("table", pattern="[a-z_][a-z0-9_]*", bound="the static tables of the query")
_PLACED_STAGE = Label("stage", ("combine",))
_MEMORY_PART = Label("part", tuple(MemoryPart))


def _metric(
    name: str,
    kind: Literal["counter", "gauge", "histogram"],
    unit: Unit,
    help: str,
    *labels: Label,
    buckets: tuple[float, ...] = (),
) -> Metric:
    return Metric(name, kind, unit, help, (QUERY, *labels), buckets)


CONTRACT = (
    _metric("millrace_batches_total", "counter", "number", "Batches finished."),
    _metric(
        "millrace_batch_processing_seconds",
        "histogram",
        "seconds",
        "Processing time of a batch, from its trigger to its commit.",
        buckets=_BATCH_BUCKETS,
    ),
    _metric(
        "millrace_record_latency_seconds",
        "histogram",
        "seconds",
        "Time from the arrival of a record to the commit of the batch that has it, of the records read. A record of "
        "Kafka arrives at the time of its message, one of a file when that was written, and one that is generated or "
        "replayed when it is due; absent for a replay without a pace. Of many records at once, a sample is taken.",
        buckets=_BATCH_BUCKETS,
    ),
    _metric(
        "millrace_batch_step_seconds_total",
        "counter",
        "seconds",
        f"Time that the steps of batches took. step is {', '.join(STEPS)}, as Spark names them; tasks run in addBatch.",
        Label("step", STEPS),
    ),
    _metric(
        "millrace_sink_seconds_total",
        "counter",
        "seconds",
        "Time that sinks took once results were computed: to write from the driver, or to commit what tasks have "
        "written. Of tasks that write to Kafka side by side, the longest counts in each batch.",
    ),
    _metric(
        "millrace_batch_interval_seconds",
        "gauge",
        "seconds",
        "The batch interval: processing time should stay below it.",
    ),
    _metric(
        "millrace_last_progress_time_seconds",
        "gauge",
        "seconds",
        "When a batch last ended or the query last had nothing to do, in seconds since 1970; absent before either.",
    ),
    _metric("millrace_input_rows_total", "counter", "rows", "Records read from the sources."),
    _metric("millrace_input_bytes_total", "counter", "bytes", "Size of these records in memory, once decoded."),
    _metric("millrace_routed_rows_total", "counter", "rows", "Records that passed the filter and went to workers."),
    _metric(
        "millrace_stage_output_bytes_total",
        "counter",
        "bytes",
        "Size of what the tasks of a stage sent to the next stage, before compression: blocks of records by route, "
        "partial results by combine.",
        _STAGE,
    ),
    _metric(
        "millrace_rejected_rows_total",
        "counter",
        "rows",
        "Records that were dropped or dead-lettered because they could not be decoded.",
    ),
    _metric("millrace_late_rows_total", "counter", "rows", "Records behind the watermark, which no result counts."),
    _metric(
        "millrace_incomplete_rows_total",
        "counter",
        "rows",
        "Records that no result counts because the key of their table, or the event time of their window, is NULL.",
    ),
    _metric(
        "millrace_source_lag_rows",
        "gauge",
        "rows",
        "Records the sources had left when the last batch was planned; 0 if there was nothing to do before the first.",
    ),
    _metric(
        "millrace_source_partition_lag_rows",
        "gauge",
        "rows",
        "Records that the last batch left in a partition of Kafka, of the up to eight partitions of each source that "
        "had the most; absent where none were left.",
        Label("source", pattern="[a-z_][a-z0-9_]*", bound="the sources of the query"),
        Label("partition", pattern="[A-Za-z0-9._-]+-[0-9]+", bound="at most eight of each source"),
    ),
    _metric(
        "millrace_table_current_time_seconds",
        "gauge",
        "seconds",
        "When a static table was last read, or found unchanged, in seconds since 1970; of tables that are refreshed or "
        "read from a database or a lakehouse.",
        _TABLE,
    ),
    _metric(
        "millrace_table_refresh_interval_seconds",
        "gauge",
        "seconds",
        "Time between two refreshes of such a table, as refreshEvery says; absent for a table without it.",
        _TABLE,
    ),
    _metric(
        "millrace_table_rows",
        "gauge",
        "rows",
        "Rows of the newest content of such a table.",
        _TABLE,
    ),
    _metric(
        "millrace_table_refresh_failures_total",
        "counter",
        "number",
        "Reads of static tables that have failed; the query goes on with the content that it has.",
    ),
    _metric(
        "millrace_distinct_keys",
        "gauge",
        "keys",
        "Distinct keys in the last batch: exact up to 256, else an estimate with a standard error of up to 7 %.",
    ),
    _metric(
        "millrace_hottest_key_ratio",
        "gauge",
        "ratio",
        "Share of the records of the last batch that its most frequent key had, at least; absent while no record is "
        "routed.",
    ),
    _metric(
        "millrace_largest_slice_ratio",
        "gauge",
        "ratio",
        "Share of the records of the last batch that its largest slice had; absent while no record is read by "
        "replicas in the job's own tasks.",
    ),
    _metric(
        "millrace_load_imbalance_ratio",
        "gauge",
        "ratio",
        "Largest load of a worker less the average one, as a fraction of the average, in the last batch; "
        "absent while no record is routed. stage is combine.",
        _PLACED_STAGE,
    ),
    _metric(
        "millrace_cardinality_imbalance_ratio",
        "gauge",
        "ratio",
        "Most distinct keys of a worker less the average number, as a fraction of the average, in the last batch; "
        "absent while no record is routed. stage is combine.",
        _PLACED_STAGE,
    ),
    _metric(
        "millrace_aggregation_cost_keys",
        "gauge",
        "keys",
        "Distinct keys of each worker, summed over the workers, in the last batch; absent while no record is routed.",
    ),
    _metric(
        "millrace_replication_factor_ratio",
        "gauge",
        "ratio",
        "Workers a key was sent to, on average, in the last batch; absent while no record is routed.",
    ),
    _metric(
        "millrace_moved_keys_ratio",
        "gauge",
        "ratio",
        "Share of the keys that went to other workers than in the batch before, in a sample of the keys of both; "
        "absent while no record is routed, and where the sample is empty.",
    ),
    _metric(
        "millrace_stage_task_seconds",
        "histogram",
        "seconds",
        "Time of each task of a stage. stage is route or combine; Spark reports the merge's only as a sum, see "
        "millrace_merge_task_seconds_total.",
        _STAGE,
        buckets=_TASK_BUCKETS,
    ),
    _metric(
        "millrace_longest_slice_seconds_total",
        "counter",
        "seconds",
        "Time that a replica in the job's own tasks took to read and place its slice, of the one that took longest in "
        "each batch.",
    ),
    _metric(
        "millrace_merge_task_seconds_total",
        "counter",
        "seconds",
        "Time spent on updating and committing state, summed over the tasks of the merge.",
    ),
    _metric(
        "millrace_gc_seconds_total",
        "counter",
        "seconds",
        "Time that JVMs spent on garbage collection: the driver's, and those of all executors, as far as they reported "
        "it with their tasks. In one process, the driver runs the tasks.",
        Label("role", ROLES),
    ),
    _metric(
        "millrace_memory_used_bytes",
        "gauge",
        "bytes",
        "Memory that is in use: of the driver, or of the executor that is nearest to its limit, once a task that runs "
        "Python has reported it. part is heap, of the driver alone, what the last collection of the heap's old "
        "generation left there, absent before the first one; container, what its processes use and the kernel cannot "
        "take back, without the page cache; or beside-heap, what of that is not the heap of the JVM. The latter two "
        "are absent without a memory limit.",
        Label("role", ROLES),
        _MEMORY_PART,
    ),
    _metric(
        "millrace_memory_limit_bytes",
        "gauge",
        "bytes",
        "The most that millrace_memory_used_bytes can be: the largest size of the heap's old generation, the memory "
        "limit of the container, or what that leaves beside the largest heap.",
        Label("role", ROLES),
        _MEMORY_PART,
    ),
    _metric(
        "millrace_store_requests_total",
        "counter",
        "number",
        "Requests of object stores, by kind as stores bill them. client is millrace for its own requests, of the "
        "driver and, in one process, of tasks, and spark for those of Spark's client for S3 in the driver's JVM; "
        "executors' requests and those of other clients are not counted.",
        Label("client", CLIENTS),
        Label("request", REQUESTS),
    ),
    _metric(
        "millrace_store_bytes_total",
        "counter",
        "bytes",
        "Bytes of objects that these requests read or wrote.",
        Label("client", CLIENTS),
        Label("direction", DIRECTIONS),
    ),
    _metric(
        "millrace_partial_results_total",
        "counter",
        "number",
        "Partial results of combine: one for each key and pane of a task.",
    ),
    _metric(
        "millrace_worker_rows",
        "gauge",
        "rows",
        "Records of each worker in the last batch; absent while no record is routed. Of more than 64 workers, "
        "neighbors are added up, and worker is a range such as 0-3.",
        Label("worker", pattern="[0-9]+(-[0-9]+)?", bound="at most 64"),
    ),
    _metric(
        "millrace_checkpoint_write_seconds",
        "histogram",
        "seconds",
        "Time that the checkpoint took in a batch: the two writes to Spark's logs, and the commit of a state "
        "partition, on average.",
        buckets=_WRITE_BUCKETS,
    ),
    _metric(
        "millrace_checkpoint_failures_total",
        "counter",
        "number",
        "Writes of the checkpoint's lease that failed, as on a full disk; the driver ends if they go on. A failed "
        "write of state ends the driver at once.",
    ),
    _metric(
        "millrace_checkpoint_volume_size_bytes",
        "gauge",
        "bytes",
        "Size of the file system that has the checkpoint, as the driver sees it.",
    ),
    _metric(
        "millrace_checkpoint_volume_free_bytes",
        "gauge",
        "bytes",
        "What is left of it for the driver; other queries may write there, too.",
    ),
    _metric(
        "millrace_snapshot_current_time_seconds",
        "gauge",
        "seconds",
        "When the newest automatic snapshot was taken, or found to be of the newest batch, in seconds since 1970; "
        "absent before the first.",
    ),
    _metric(
        "millrace_snapshot_interval_seconds",
        "gauge",
        "seconds",
        "Time between two automatic snapshots, as snapshots.every says; absent without it.",
    ),
    _metric(
        "millrace_snapshot_seconds",
        "gauge",
        "seconds",
        "Time that the last automatic snapshot took, beside the batches; absent until the driver has taken one.",
    ),
    _metric(
        "millrace_snapshot_failures_total",
        "counter",
        "number",
        "Automatic snapshots that could not be taken; the query goes on.",
    ),
    _metric(
        "millrace_run_restarts_total",
        "counter",
        "number",
        "Times that the query was started again within its driver, after a failure that may pass by itself, such as an "
        "unreachable broker. After five without a finished batch, the driver ends.",
    ),
    _metric("millrace_state_updates_total", "counter", "number", "Results whose state changed."),
    _metric("millrace_state_partitions", "gauge", "number", "State partitions, each of which is a task of the merge."),
    _metric(
        "millrace_plan_epoch",
        "gauge",
        "number",
        "Epoch of the plan of the last batch, or of the next one while there is nothing to do.",
    ),
    _metric(
        "millrace_plan_workers",
        "gauge",
        "number",
        "Workers (n) of the last batch, or of the next one while there is nothing to do: those of its plan, or fewer "
        "while executors are missing.",
    ),
    _metric(
        "millrace_plan_replicas",
        "gauge",
        "number",
        "Partitioner replicas (m) of the last batch, or of the next one while there is nothing to do: those of its "
        "plan, or fewer while executors are missing.",
    ),
    _metric(
        "millrace_plan_info",
        "gauge",
        "number",
        "Always 1; the label algorithm names the partitioner in the plan of the last batch, or of the next one.",
        Label("algorithm", tuple(Algorithm)),
    ),
    _metric(
        "millrace_auto_switches_total",
        "counter",
        "number",
        "Switches of algorithm auto. reason is imbalance, aggregation cost, routing, measured or draw.",
        Label("reason", REASONS),
    ),
    _metric(
        "millrace_auto_prediction_error_ratio",
        "gauge",
        "ratio",
        "Batch time that algorithm auto last predicted less the one that was then observed, as a fraction of the "
        "latter; absent before anything was predicted.",
    ),
    _metric(
        "millrace_watermark_delay_seconds",
        "gauge",
        "seconds",
        "Event time by which the watermark of the last batch was behind the newest record seen.",
    ),
    _metric(
        "millrace_state_rows",
        "gauge",
        "rows",
        "Rows in the state after the last batch; of operators on tables, those in buckets processed since the start. "
        "Spark's own operators count them only where sparkConf turns it on, since that takes time; otherwise absent.",
    ),
    _metric("millrace_state_bytes", "gauge", "bytes", "Memory that the state store used after the last batch."),
    _metric("millrace_lineage_events_total", "counter", "number", "Events of lineage that the receiver has taken."),
    _metric(
        "millrace_lineage_dropped_events_total",
        "counter",
        "number",
        "Events of lineage that were given up, because the receiver did not take them.",
    ),
)
"""All metrics of a job."""
