import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * The join of the benchmark in Kafka Streams, exactly once: views and clicks of the same page at nearly the same time.
 *
 * <p>The topics have the page as key in the same partitions, so nothing is repartitioned. Their messages have the
 * records' times, which is what Kafka Streams joins by. Only what a result needs of a record is kept in the state.
 *
 * <p>Arguments: servers, topic of views, topic of clicks, topic to write, application id, folder for state, commit
 * interval in ms, band in ms, grace in ms.
 */
public final class KafkaStreamsJoin {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    var streams = new KafkaStreams(topology(args).build(), settings(args));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
    Thread.sleep(Long.MAX_VALUE);
  }

  private static Properties settings(String[] args) {
    var settings = new Properties();
    settings.put("bootstrap.servers", args[0]);
    settings.put("application.id", args[4]);
    settings.put("state.dir", args[5]);
    settings.put("commit.interval.ms", args[6]);
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", "2");
    settings.put("auto.offset.reset", "earliest");
    settings.put("replication.factor", "1");
    settings.put("main.consumer.max.poll.records", "2000");
    return settings;
  }

  private static StreamsBuilder topology(String[] args) {
    var strings = Serdes.String();
    var builder = new StreamsBuilder();
    var band = Duration.ofMillis(Long.parseLong(args[7]));
    var grace = Duration.ofMillis(Long.parseLong(args[8]));
    records(builder, args[1])
        .join(
            records(builder, args[2]),
            KafkaStreamsJoin::result,
            JoinWindows.ofTimeDifferenceAndGrace(band, grace),
            StreamJoined.with(strings, strings, strings))
        .to(args[3], Produced.with(strings, strings));
    return builder;
  }

  /** The records of a topic as "id,page,time". */
  private static KStream<String, String> records(StreamsBuilder builder, String topic) {
    return builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String())).mapValues(text -> {
      try {
        var record = JSON.readTree(text);
        var time = Instant.parse(record.get("at").asText()).toEpochMilli();
        return record.get("id").asText() + "," + record.get("page").asText() + "," + time;
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    });
  }

  private static String result(String left, String right) {
    var view = left.split(",");
    var click = right.split(",");
    var latest = Math.max(Long.parseLong(view[2]), Long.parseLong(click[2]));
    return "{\"page\":\"" + view[1] + "\",\"view\":" + view[0] + ",\"click\":" + click[0] + ",\"latest\":" + latest + "}";
  }
}
