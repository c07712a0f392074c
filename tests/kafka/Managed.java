import java.util.*;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses topics as managed services do, by the property managed.kind: msk-serverless or confluent. */
public class Managed implements CreateTopicPolicy {
  static final Set<String> SERVERLESS = Set.of("cleanup.policy", "compression.type", "max.message.bytes",
      "message.timestamp.type", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
      "retention.bytes", "retention.ms");
  static final Set<String> FIXED = Set.of("unclean.leader.election.enable", "min.cleanable.dirty.ratio");

  public void configure(Map<String, ?> settings) {}

  public void validate(RequestMetadata topic) {
    // The service makes its own topics as it likes.
    if (topic.topic().startsWith("__")) return;
    // One broker chooses 1, as a service chooses 3; a policy sees the choice.
    if (topic.replicationFactor() != null && topic.replicationFactor() != 1)
      throw new PolicyViolationException("Topic replication factor must be the default");
    boolean serverless = System.getProperty("managed.kind").equals("msk-serverless");
    for (String name : topic.configs().keySet())
      if (serverless ? !SERVERLESS.contains(name) : FIXED.contains(name))
        throw new PolicyViolationException("Unsupported topic configuration: " + name);
    if (topic.topic().endsWith(".no.state"))
      throw new PolicyViolationException("Topic name is reserved");
  }

  public void close() {}
}
