// Iceberg's Java library on an SQL catalog: a fast append and a property in one transaction.
//
// Files are written without Hadoop: its local file system starts a process for the mode of each new file.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.Files;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

final class Iceberg extends Commits {
    private static final Namespace NAMESPACE = Namespace.of("db");
    private static final Schema SCHEMA = new Schema(
        Types.NestedField.optional(1, "id", Types.LongType.get()),
        Types.NestedField.optional(2, "day", Types.StringType.get()),
        Types.NestedField.optional(3, "name", Types.StringType.get()),
        Types.NestedField.optional(4, "value", Types.DoubleType.get()),
        Types.NestedField.optional(5, "at", Types.LongType.get()));
    private static final PartitionSpec SPEC = PartitionSpec.builderFor(SCHEMA).identity("day").build();

    private final JdbcCatalog catalog = new JdbcCatalog();
    private Table table;
    private long decision;
    private List<DataFile> files;

    /** Files of the local file system, by paths and `file:` URIs. */
    public static final class LocalFiles implements FileIO {
        private static String path(String location) {
            return location.replaceFirst("^file:/*", "/");
        }

        @Override
        public InputFile newInputFile(String location) {
            return Files.localInput(path(location));
        }

        @Override
        public OutputFile newOutputFile(String location) {
            return Files.localOutput(path(location));
        }

        @Override
        public void deleteFile(String location) {
            try {
                java.nio.file.Files.deleteIfExists(java.nio.file.Path.of(path(location)));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    private Iceberg(String folder) {
        catalog.initialize("default", Map.of(
            "uri", "jdbc:sqlite:" + folder + "/catalog.db",
            "warehouse", "file://" + folder,
            "io-impl", LocalFiles.class.getName()));
        if (!catalog.namespaceExists(NAMESPACE)) {
            catalog.createNamespace(NAMESPACE);
        }
    }

    public static void main(String[] arguments) throws Exception {
        new Iceberg(arguments[0]).answer();
    }

    @Override
    String create(String name) {
        return catalog.createTable(TableIdentifier.of(NAMESPACE, name), SCHEMA, SPEC).location();
    }

    @Override
    void use(String name) {
        table = catalog.loadTable(TableIdentifier.of(NAMESPACE, name));
    }

    @Override
    void prepare(int count) {
        files = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            var day = day(number % DAYS);
            files.add(DataFiles.builder(table.spec())
                .withPath(table.location() + "/data/day=" + day + "/" + fileName())
                .withFormat(FileFormat.PARQUET)
                .withFileSizeInBytes(SIZE)
                .withPartitionPath("day=" + day)
                .withMetrics(metrics(day))
                .withSplitOffsets(List.of(4L))
                .build());
        }
    }

    private static Metrics metrics(String day) {
        Map<Integer, Long> sizes = new HashMap<>();
        Map<Integer, Long> values = new HashMap<>();
        Map<Integer, Long> nulls = new HashMap<>();
        for (Types.NestedField column : SCHEMA.columns()) {
            sizes.put(column.fieldId(), 100L);
            values.put(column.fieldId(), ROWS);
            nulls.put(column.fieldId(), 0L);
        }
        var low = bounds(1L, day, LOW_NAME, 0.5, FIRST_TIME);
        var high = bounds(1_000_000L, day, HIGH_NAME, 99.5, FIRST_TIME + 900_000);
        return new Metrics(ROWS, sizes, values, nulls, Map.of(4, 0L), low, high);
    }

    private static Map<Integer, ByteBuffer> bounds(Object... values) {
        Map<Integer, ByteBuffer> found = new HashMap<>();
        for (int at = 0; at < values.length; at++) {
            Type type = SCHEMA.columns().get(at).type();
            found.put(at + 1, Conversions.toByteBuffer(type, values[at]));
        }
        return found;
    }

    @Override
    void commit() {
        var transaction = table.newTransaction();
        var append = transaction.newFastAppend();
        files.forEach(append::appendFile);
        append.commit();
        transaction.updateProperties().set("bench.decision", Long.toString(++decision)).commit();
        transaction.commitTransaction();
    }

    @Override
    long count(String name) throws Exception {
        long found = 0;
        try (var tasks = catalog.loadTable(TableIdentifier.of(NAMESPACE, name)).newScan().planFiles()) {
            for (var ignored : tasks) {
                found++;
            }
        }
        return found;
    }
}
