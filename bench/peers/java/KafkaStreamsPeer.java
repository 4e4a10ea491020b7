import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * The question of the benchmark in Kafka Streams, exactly once: number of records and newest event time by key in
 * windows of 10 s, every update.
 *
 * <p>Arguments: servers, topic to read, topic to write, application id, folder for state, commit interval in ms, number
 * of threads, number of state partitions or 0 for as many as the topic has.
 */
public final class KafkaStreamsPeer {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    var streams = new KafkaStreams(topology(args[1], args[2], Integer.parseInt(args[7])).build(), settings(args));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
    Thread.sleep(Long.MAX_VALUE);
  }

  private static Properties settings(String[] args) {
    var settings = new Properties();
    settings.put("bootstrap.servers", args[0]);
    settings.put("application.id", args[3]);
    settings.put("state.dir", args[4]);
    settings.put("commit.interval.ms", args[5]);
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", args[6]);
    settings.put("auto.offset.reset", "earliest");
    settings.put("replication.factor", "1");
    settings.put("main.consumer.max.poll.records", "2000");
    settings.put("statestore.cache.max.bytes", "67108864");
    return settings;
  }

  private static StreamsBuilder topology(String source, String sink, int partitions) {
    var strings = Serdes.String();
    var builder = new StreamsBuilder();
    var times = builder
        .stream(source, Consumed.with(strings, strings).withTimestampExtractor((record, last) -> time(parsed((String) record.value()))))
        .map((key, value) -> {
          var record = parsed(value);
          return KeyValue.pair(record.get("key").asText(), Long.toString(time(record)));
        });
    if (partitions > 0) {
      times = times.repartition(Repartitioned.with(strings, strings).withNumberOfPartitions(partitions));
    }
    times
        .groupByKey(Grouped.with(strings, strings))
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofDays(1)))
        .aggregate(() -> "0,0", (key, time, state) -> added(state, Long.parseLong(time)), Materialized.with(strings, strings))
        .toStream()
        .map((window, state) -> KeyValue.pair(window.key(), result(window.key(), window.window().start(), state)))
        .to(sink, Produced.with(strings, strings));
    return builder;
  }

  private static String added(String state, long time) {
    var comma = state.indexOf(',');
    var records = Long.parseLong(state.substring(0, comma)) + 1;
    return records + "," + Math.max(Long.parseLong(state.substring(comma + 1)), time);
  }

  private static String result(String key, long since, String state) {
    var comma = state.indexOf(',');
    return "{\"since\":" + since + ",\"key\":\"" + key + "\",\"n\":" + state.substring(0, comma)
        + ",\"latest\":" + state.substring(comma + 1) + "}";
  }

  private static JsonNode parsed(String text) {
    try {
      return JSON.readTree(text);
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static long time(JsonNode record) {
    return Instant.parse(record.get("at").asText()).toEpochMilli();
  }
}
