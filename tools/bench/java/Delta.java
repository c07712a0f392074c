// Delta's Java library, the kernel with its default engine: each transaction is built on the snapshot of the
// one before, so no commit lists or reads the log. Checkpoints and checksums follow outside of the time.
//
// Hadoop starts a process for the mode of each new local file, and one for each rename by the default store of
// the log. Both are avoided here: they would take most of the time.

import io.delta.kernel.Operation;
import io.delta.kernel.Snapshot;
import io.delta.kernel.TableManager;
import io.delta.kernel.Transaction;
import io.delta.kernel.TransactionCommitResult;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.expressions.Column;
import io.delta.kernel.expressions.Literal;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.statistics.DataFileStatistics;
import io.delta.kernel.transaction.DataLayoutSpec;
import io.delta.kernel.types.DoubleType;
import io.delta.kernel.types.LongType;
import io.delta.kernel.types.StringType;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.DataFileStatus;
import io.delta.storage.LocalLogStore;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

final class Delta extends Commits {
    private static final StructType SCHEMA = new StructType()
        .add("id", LongType.LONG)
        .add("day", StringType.STRING)
        .add("name", StringType.STRING)
        .add("value", DoubleType.DOUBLE)
        .add("at", LongType.LONG);

    private final String folder;
    private final Engine engine;
    private Snapshot snapshot;
    private Row state;
    private long decision;
    private List<Row> actions;
    private TransactionCommitResult result;

    /** Hadoop's local file system without its checksum files and without modes. */
    public static final class PlainFiles extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {}
    }

    private Delta(String folder) {
        this.folder = folder;
        var configuration = new Configuration();
        configuration.set("fs.file.impl", PlainFiles.class.getName());
        configuration.set("io.delta.kernel.logStore.file.impl", LocalLogStore.class.getName());
        engine = DefaultEngine.create(configuration);
    }

    public static void main(String[] arguments) throws Exception {
        new Delta(arguments[0]).answer();
    }

    private Snapshot load(String name) {
        return TableManager.loadSnapshot(folder + "/" + name).build(engine);
    }

    @Override
    String create(String name) {
        TableManager.buildCreateTableTransaction(folder + "/" + name, SCHEMA, "bench")
            .withDataLayoutSpec(DataLayoutSpec.partitioned(List.of(new Column("day"))))
            .build(engine)
            .commit(engine, CloseableIterable.emptyIterable());
        return folder + "/" + name;
    }

    @Override
    void use(String name) {
        snapshot = load(name);
        state = transaction(0).getTransactionState(engine);
    }

    private Transaction transaction(long number) {
        return snapshot.buildUpdateTableTransaction("bench", Operation.WRITE)
            .withTransactionId("bench", number)
            .build(engine);
    }

    @Override
    void prepare(int files) throws Exception {
        actions = new ArrayList<>();
        for (int day = 0; day < Math.min(DAYS, files); day++) {
            var context = Transaction.getWriteContext(engine, state, Map.of("day", Literal.ofString(day(day))));
            var made = new ArrayList<DataFileStatus>();
            for (int number = day; number < files; number += DAYS) {
                var path = context.getTargetDirectory() + "/" + fileName();
                made.add(new DataFileStatus(path, SIZE, FIRST_TIME, Optional.of(statistics())));
            }
            try (var rows = Transaction.generateAppendActions(engine, state, iterator(made), context)) {
                rows.forEachRemaining(actions::add);
            }
        }
    }

    private static DataFileStatistics statistics() {
        var low = bounds(1L, LOW_NAME, 0.5, FIRST_TIME);
        var high = bounds(1_000_000L, HIGH_NAME, 99.5, FIRST_TIME + 900_000);
        var nulls = new HashMap<Column, Long>();
        low.keySet().forEach(column -> nulls.put(column, 0L));
        return new DataFileStatistics(ROWS, low, high, nulls, Optional.empty());
    }

    private static Map<Column, Literal> bounds(long id, String name, double value, long at) {
        return new HashMap<>(Map.of(
            new Column("id"), Literal.ofLong(id),
            new Column("name"), Literal.ofString(name),
            new Column("value"), Literal.ofDouble(value),
            new Column("at"), Literal.ofLong(at)));
    }

    private static <T> CloseableIterator<T> iterator(List<T> items) {
        return Utils.toCloseableIterator(items.iterator());
    }

    @Override
    void commit() {
        result = transaction(++decision).commit(engine, CloseableIterable.inMemoryIterable(iterator(actions)));
    }

    @Override
    void settle() throws Exception {
        snapshot = result.getPostCommitSnapshot().orElseThrow();
        for (var hook : result.getPostCommitHooks()) {
            hook.threadSafeInvoke(engine);
        }
    }

    @Override
    long count(String name) throws Exception {
        long found = 0;
        try (CloseableIterator<FilteredColumnarBatch> batches =
                load(name).getScanBuilder().build().getScanFiles(engine)) {
            while (batches.hasNext()) {
                try (CloseableIterator<Row> rows = batches.next().getRows()) {
                    for (Iterator<Row> each = rows; each.hasNext(); each.next()) {
                        found++;
                    }
                }
            }
        }
        return found;
    }
}
