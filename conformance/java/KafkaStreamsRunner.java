import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Initializer;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs cases in Kafka Streams: real topologies and stores, in the driver of its own tests, record by record.
 *
 * <p>Arguments: a file with cases in JSON, and a folder for state. Outcomes go to standard output, one line each. The
 * topologies stand in the place of TOPOLOGIES, as methods named after their queries.
 */
public final class KafkaStreamsRunner {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long BEGIN = Instant.parse("2026-01-01T00:00:00Z").toEpochMilli();

  static final Serde<String> TEXT = Serdes.String();
  static final Serde<Long> LONGS = Serdes.Long();
  static final Serde<Map<String, Object>> ROWS = new Rows();

  private final StreamsBuilder builder = new StreamsBuilder();

  public static void main(String[] args) throws Exception {
    for (var each : JSON.readTree(new File(args[0]))) {
      Map<String, Object> outcome = new LinkedHashMap<>();
      outcome.put("id", each.get("id").asText());
      try {
        outcome.put("messages", run(each, args[1]));
      } catch (Exception error) {
        outcome.put("error", reason(error));
      }
      System.out.println(JSON.writeValueAsString(outcome));
    }
  }

  private static String reason(Throwable error) {
    while (error.getCause() != null) {
      error = error.getCause();
    }
    return error.toString();
  }

  private static List<Map<String, Object>> run(JsonNode each, String folder) throws Exception {
    var runner = new KafkaStreamsRunner();
    KafkaStreamsRunner.class.getDeclaredMethod(each.get("method").asText()).invoke(runner);
    var settings = new Properties();
    settings.put("application.id", "conformance");
    settings.put("bootstrap.servers", "unused:9092");
    settings.put("state.dir", Files.createTempDirectory(Path.of(folder), "state").toString());
    settings.put("default.key.serde", Serdes.StringSerde.class);
    settings.put("default.value.serde", Rows.class);
    var messages = new ArrayList<Map<String, Object>>();
    try (var driver = new TopologyTestDriver(runner.builder.build(), settings, Instant.ofEpochMilli(BEGIN))) {
      var inputs = new HashMap<String, TestInputTopic<String, Map<String, Object>>>();
      for (var name : each.get("inputs")) {
        inputs.put(name.asText(), driver.createInputTopic(name.asText(), new StringSerializer(), ROWS.serializer()));
      }
      for (var arrival : each.get("arrivals")) {
        var at = Instant.ofEpochMilli(BEGIN + 1000 * arrival.get("at").asLong());
        Map<String, Object> value = arrival.has("delete") ? null : row("k", arrival.get("k").asText(),
            "f", arrival.has("f") ? arrival.get("f").asText() : null,
            "v", arrival.has("v") ? arrival.get("v").asLong() : null);
        inputs.get(arrival.get("to").asText()).pipeInput(arrival.get("k").asText(), value, at);
        // outer joins look for records without a partner at most once a second of the wall clock
        driver.advanceWallClockTime(Duration.ofSeconds(2));
      }
      var output = driver.createOutputTopic("out", new StringDeserializer(), ROWS.deserializer());
      while (!output.isEmpty()) {
        var message = output.readRecord();
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("at", (message.timestamp() - BEGIN) / 1000);
        found.put("key", message.key());
        found.put("row", message.value());
        messages.add(found);
      }
    }
    return messages;
  }

  private KStream<String, Map<String, Object>> stream(String name) {
    return builder.stream(name, Consumed.with(TEXT, ROWS));
  }

  private KTable<String, Map<String, Object>> table(String name) {
    return builder.table(name, Consumed.with(TEXT, ROWS),
        Materialized.as(Stores.persistentVersionedKeyValueStore(name + "-versions", Duration.ofHours(1))));
  }

  private static StreamJoined<String, Map<String, Object>, Map<String, Object>> joined() {
    return StreamJoined.with(TEXT, ROWS, ROWS);
  }

  /** The state of a group before its first row, of which SQL has no row. */
  private static Initializer<Map<String, Object>> none() {
    return () -> null;
  }

  private static Duration seconds(long seconds) {
    return Duration.ofSeconds(seconds);
  }

  private static long start(Windowed<String> window) {
    return (window.window().start() - BEGIN) / 1000;
  }

  private static Map<String, Object> row(Object... columns) {
    Map<String, Object> row = new LinkedHashMap<>();
    for (var at = 0; at < columns.length; at += 2) {
      row.put((String) columns[at], columns[at + 1]);
    }
    return row;
  }

  private static Object get(Map<String, Object> row, String column) {
    return row == null ? null : row.get(column);
  }

  private static long number(Map<String, Object> row, String column) {
    var value = get(row, column);
    return value == null ? 0 : ((Number) value).longValue();
  }

  private static boolean isLess(Map<String, Object> one, Map<String, Object> other) {
    return get(one, "v") != null && get(other, "v") != null && number(one, "v") < number(other, "v");
  }

  private static Object added(Object sum, Object value) {
    if (sum == null || value == null) {
      return sum == null ? value : sum;
    }
    return ((Number) sum).longValue() + ((Number) value).longValue();
  }

  @SuppressWarnings("unchecked")
  private static List<Long> values(Map<String, Object> row) {
    var values = new ArrayList<Long>();
    if (row != null) {
      ((List<Number>) row.get("values")).forEach(value -> values.add(value.longValue()));
    }
    return values;
  }

  private static List<Long> with(Map<String, Object> row, long value) {
    var values = values(row);
    values.add(value);
    return values;
  }

  private static List<Long> without(Map<String, Object> row, long value) {
    var values = values(row);
    values.remove((Long) value);
    return values;
  }

  @SuppressWarnings("unchecked")
  private static List<String> texts(Map<String, Object> row) {
    return new ArrayList<>(row == null ? List.of() : (List<String>) row.get("texts"));
  }

  private static List<String> with(List<String> texts, String text) {
    texts.add(text);
    return texts;
  }

  private static List<String> without(List<String> texts, String text) {
    texts.remove(text);
    return texts;
  }

  /** The columns v and k as a text, which is greater for a greater v, and then for a greater k. */
  private static String sortable(Map<String, Object> row) {
    return String.format("%019d %s", number(row, "v"), row.get("k"));
  }

  private static String nameOf(String sortable) {
    return sortable == null ? null : sortable.substring(20);
  }

  /** One of the largest values, counted from 0. */
  private static <T extends Comparable<T>> T largest(List<T> values, int place) {
    values.sort(Comparator.reverseOrder());
    return place < values.size() ? values.get(place) : null;
  }

  private static double median(List<Long> values) {
    values.sort(Comparator.naturalOrder());
    var n = values.size();
    return (values.get((n - 1) / 2) + values.get(n / 2)) / 2.0;
  }

  /** Number, sum and sum of squares with one more value, or with one less if the sign is -1. */
  private static Map<String, Object> moments(String name, String key, Map<String, Object> row, long value, int sign) {
    return row(name, key, "n", number(row, "n") + sign, "sum", number(row, "sum") + sign * value,
        "squares", number(row, "squares") + sign * value * value);
  }

  private static Double deviation(Map<String, Object> row) {
    double n = number(row, "n");
    double sum = number(row, "sum");
    return n < 2 ? null : (Double) Math.sqrt((number(row, "squares") - sum * sum / n) / (n - 1));
  }

  /** Rows as JSON. */
  public static final class Rows implements Serde<Map<String, Object>> {
    @Override
    public Serializer<Map<String, Object>> serializer() {
      return (topic, row) -> {
        try {
          return row == null ? null : JSON.writeValueAsBytes(row);
        } catch (Exception error) {
          throw new IllegalStateException(error);
        }
      };
    }

    @Override
    @SuppressWarnings("unchecked")
    public Deserializer<Map<String, Object>> deserializer() {
      return (topic, bytes) -> {
        try {
          return bytes == null ? null : JSON.readValue(bytes, Map.class);
        } catch (Exception error) {
          throw new IllegalStateException(error);
        }
      };
    }
  }

  // TOPOLOGIES
}
