import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.triggers.Trigger;
import org.apache.flink.streaming.api.windowing.triggers.TriggerResult;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * The question of the benchmark in Flink's DataStream API, exactly once with RocksDB: number of records and newest event
 * time by key in windows of 10 s, with a limit of updates.
 *
 * <p>Arguments: servers, topic to read, topic to write, prefix of transactions, folder for checkpoints, checkpoint
 * interval in ms, number of tasks at once, number of key groups or 0, ms after which a changed window is emitted,
 * checkpoint to start from or an empty text.
 */
public final class FlinkPeer {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    var slots = Integer.parseInt(args[6]);
    var groups = Integer.parseInt(args[7]);
    var environment = StreamExecutionEnvironment.createLocalEnvironment(slots, settings(args));
    environment.getConfig().enableObjectReuse();
    var source = KafkaSource.<String>builder()
        .setBootstrapServers(args[0])
        .setTopics(args[1])
        .setGroupId(args[3])
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setValueOnlyDeserializer(new SimpleStringSchema())
        .build();
    var sink = KafkaSink.<String>builder()
        .setBootstrapServers(args[0])
        .setRecordSerializer(KafkaRecordSerializationSchema.builder()
            .setTopic(args[2])
            .setValueSerializationSchema(new SimpleStringSchema())
            .build())
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .setTransactionalIdPrefix(args[3])
        .setProperty("transaction.timeout.ms", "600000")
        .build();
    var results = environment.fromSource(source, WatermarkStrategy.noWatermarks(), "kafka")
        .map(text -> {
          var record = JSON.readTree(text);
          return Tuple2.of(record.get("key").asText(), Instant.parse(record.get("at").asText()).toEpochMilli());
        })
        .returns(Types.TUPLE(Types.STRING, Types.LONG))
        .assignTimestampsAndWatermarks(WatermarkStrategy
            .<Tuple2<String, Long>>forBoundedOutOfOrderness(Duration.ofHours(1))
            .withTimestampAssigner((record, time) -> record.f1))
        .keyBy(record -> record.f0, Types.STRING)
        .window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
        .trigger(new Updates(Long.parseLong(args[8])))
        .aggregate(new Count(), new Result());
    if (groups > 0) {
      results.setParallelism(Math.min(slots, groups));
      results.setMaxParallelism(groups);
    }
    results.sinkTo(sink);
    environment.execute();
  }

  private static Configuration settings(String[] args) {
    var settings = new Configuration();
    settings.setString("state.backend.type", "rocksdb");
    settings.setString("execution.checkpointing.interval", args[5] + "ms");
    settings.setString("execution.checkpointing.incremental", "true");
    settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    settings.setString("execution.checkpointing.dir", "file://" + args[4]);
    settings.setString("io.tmp.dirs", args[4] + "/temporary");
    settings.setString("taskmanager.memory.network.min", "128mb");
    // what a task manager with the default configuration has; a local environment has a quarter of it
    settings.setString("taskmanager.memory.managed.size", "512mb");
    settings.setString("taskmanager.numberOfTaskSlots", args[6]);
    if (!args[9].isEmpty()) {
      settings.setString("execution.state-recovery.path", args[9]);
    }
    return settings;
  }

  /** Emits a window some time after the first record that changed it. */
  public static class Updates extends Trigger<Object, TimeWindow> {
    private static final ValueStateDescriptor<Long> DUE = new ValueStateDescriptor<>("due", Types.LONG);

    private final long milliseconds;

    Updates(long milliseconds) {
      this.milliseconds = milliseconds;
    }

    @Override
    public TriggerResult onElement(Object record, long time, TimeWindow window, TriggerContext context) throws Exception {
      var due = context.getPartitionedState(DUE);
      if (due.value() == null) {
        due.update(context.getCurrentProcessingTime() + milliseconds);
        context.registerProcessingTimeTimer(due.value());
        context.registerEventTimeTimer(window.maxTimestamp());
      }
      return TriggerResult.CONTINUE;
    }

    @Override
    public TriggerResult onProcessingTime(long time, TimeWindow window, TriggerContext context) {
      context.getPartitionedState(DUE).clear();
      return TriggerResult.FIRE;
    }

    @Override
    public TriggerResult onEventTime(long time, TimeWindow window, TriggerContext context) {
      return TriggerResult.FIRE;
    }

    @Override
    public void clear(TimeWindow window, TriggerContext context) {
      context.getPartitionedState(DUE).clear();
    }
  }

  /** Number of records, and newest event time. */
  public static class Count implements AggregateFunction<Tuple2<String, Long>, Tuple2<Long, Long>, Tuple2<Long, Long>> {
    @Override
    public Tuple2<Long, Long> createAccumulator() {
      return Tuple2.of(0L, 0L);
    }

    @Override
    public Tuple2<Long, Long> add(Tuple2<String, Long> record, Tuple2<Long, Long> state) {
      state.f0++;
      state.f1 = Math.max(state.f1, record.f1);
      return state;
    }

    @Override
    public Tuple2<Long, Long> getResult(Tuple2<Long, Long> state) {
      return state;
    }

    @Override
    public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
      return Tuple2.of(one.f0 + other.f0, Math.max(one.f1, other.f1));
    }
  }

  /** A result as JSON. */
  public static class Result extends ProcessWindowFunction<Tuple2<Long, Long>, String, String, TimeWindow> {
    @Override
    public void process(String key, Context context, Iterable<Tuple2<Long, Long>> states, Collector<String> out) {
      var state = states.iterator().next();
      out.collect("{\"since\":" + context.window().getStart() + ",\"key\":\"" + key + "\",\"n\":" + state.f0
          + ",\"latest\":" + state.f1 + "}");
    }
  }
}
