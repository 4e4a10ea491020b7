import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Runs cases in Flink SQL, each as a job of a local cluster.
 *
 * <p>Arguments: a file with cases in JSON. Outcomes go to standard output, one line each. Streams are append-only tables,
 * and tables are upserts by key, as of the connector upsert-kafka. Sources take turns, so that the order of arrival is that
 * of the case.
 */
public final class FlinkRunner {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long BEGIN = Instant.parse("2026-01-01T00:00:00Z").toEpochMilli();

  public static void main(String[] args) throws Exception {
    var workers = Executors.newFixedThreadPool(3);
    var outcomes = new ArrayList<Future<String>>();
    for (var each : JSON.readTree(new File(args[0]))) {
      outcomes.add(workers.submit((Callable<String>) () -> {
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("id", each.get("id").asText());
        try {
          outcome.put("rows", run(each));
        } catch (Exception error) {
          outcome.put("error", reason(error));
        }
        return JSON.writeValueAsString(outcome);
      }));
    }
    for (var outcome : outcomes) {
      System.out.println(outcome.get());
    }
    System.exit(0);
  }

  private static String reason(Throwable error) {
    while (error.getCause() != null) {
      error = error.getCause();
    }
    return error.toString();
  }

  /** Return the rows that the changelog of the result adds up to. */
  private static List<Map<String, Object>> run(JsonNode each) throws Exception {
    var settings = new Configuration();
    settings.setString("execution.buffer-timeout.interval", "0 ms");
    settings.setString("pipeline.auto-watermark-interval", "1 ms");
    settings.setString("taskmanager.memory.network.min", "16mb");
    settings.setString("taskmanager.memory.network.max", "16mb");
    settings.setString("taskmanager.memory.managed.size", "64mb");
    settings.setString("table.local-time-zone", "UTC");
    var environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
    var tables = StreamTableEnvironment.create(environment);
    var arrivals = each.get("arrivals");
    for (var input : each.get("inputs")) {
      var name = input.get("name").asText();
      var isTable = input.get("kind").asText().equals("table");
      var rows = environment.addSource(new Arrivals(each.get("id").asText(), name, JSON.writeValueAsString(arrivals)), name)
          .returns(Types.ROW_NAMED(new String[] {"k", "f", "v", "ts"},
              Types.STRING, Types.STRING, Types.LONG, Types.INSTANT));
      var schema = Schema.newBuilder()
          .column("k", DataTypes.STRING().notNull())
          .column("f", DataTypes.STRING())
          .column("v", DataTypes.BIGINT())
          .column("ts", DataTypes.TIMESTAMP_LTZ(3))
          .watermark("ts", "ts - INTERVAL '" + each.get("grace").asInt() + "' SECOND");
      if (isTable) {
        schema.primaryKey("k");
      }
      tables.createTemporaryView(name,
          tables.fromChangelogStream(rows, schema.build(), isTable ? ChangelogMode.upsert() : ChangelogMode.insertOnly()));
    }
    var found = new ArrayList<Map<String, Object>>();
    var result = tables.sqlQuery(each.get("sql").asText());
    var names = result.getResolvedSchema().getColumnNames();
    try (var changes = tables.toChangelogStream(result).executeAndCollect()) {
      while (changes.hasNext()) {
        var change = changes.next();
        Map<String, Object> row = new LinkedHashMap<>();
        for (var at = 0; at < names.size(); at++) {
          row.put(names.get(at), value(change.getField(at)));
        }
        if (change.getKind() == RowKind.INSERT || change.getKind() == RowKind.UPDATE_AFTER) {
          found.add(row);
        } else {
          found.remove(row);
        }
      }
    }
    return found;
  }

  private static Object value(Object value) {
    if (value instanceof LocalDateTime time) {
      return (time.toInstant(ZoneOffset.UTC).toEpochMilli() - BEGIN) / 1000;
    }
    return value instanceof Instant time ? (time.toEpochMilli() - BEGIN) / 1000 : value;
  }

  /** The arrivals of one input, each when it is its turn. */
  public static final class Arrivals implements SourceFunction<Row> {
    private static final Map<String, AtomicInteger> TURNS = new ConcurrentHashMap<>();

    private final String id;
    private final String input;
    private final String arrivals;

    Arrivals(String id, String input, String arrivals) {
      this.id = id;
      this.input = input;
      this.arrivals = arrivals;
    }

    @Override
    public void run(SourceContext<Row> context) throws Exception {
      var turn = TURNS.computeIfAbsent(id, name -> new AtomicInteger());
      var number = 0;
      for (var each : JSON.readTree(arrivals)) {
        while (turn.get() < number) {
          Thread.sleep(1);
        }
        if (each.get("to").asText().equals(input)) {
          Thread.sleep(30); // for the arrival before to reach the result
          var at = Instant.ofEpochMilli(BEGIN + 1000 * each.get("at").asLong());
          var row = Row.ofKind(each.has("delete") ? RowKind.DELETE : RowKind.INSERT,
              each.get("k").asText(), each.has("f") ? each.get("f").asText() : null,
              each.has("v") ? each.get("v").asLong() : null, at);
          if (!each.has("delete") && each.get("update").asBoolean()) {
            row.setKind(RowKind.UPDATE_AFTER);
          }
          synchronized (context.getCheckpointLock()) {
            context.collect(row);
          }
          turn.incrementAndGet();
        }
        number++;
      }
    }

    @Override
    public void cancel() {}
  }
}
