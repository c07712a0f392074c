// Paimon's Java library. Its tables expire no snapshots and merge no files in a commit (`write-only`).

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.BinaryArray;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryRowWriter;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.manifest.FileSource;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.stats.SimpleStats;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.types.DataTypes;

final class Paimon extends Commits {
    private final String folder;
    private TableCommitImpl committer;
    private long identifier;
    private List<CommitMessage> messages;

    private Paimon(String folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws Exception {
        new Paimon(arguments[0]).answer();
    }

    private Path location(String name) {
        return new Path(folder + "/" + name);
    }

    private FileStoreTable table(String name) {
        return FileStoreTableFactory.create(LocalFileIO.create(), location(name))
            .copy(Map.of("write-only", "true"));
    }

    @Override
    String create(String name) throws Exception {
        var schema = Schema.newBuilder()
            .column("id", DataTypes.BIGINT())
            .column("day", DataTypes.STRING())
            .column("name", DataTypes.STRING())
            .column("value", DataTypes.DOUBLE())
            .column("at", DataTypes.BIGINT())
            .partitionKeys("day")
            .option("bucket", "-1")
            .option("metadata.stats-mode", "full")
            .build();
        new SchemaManager(LocalFileIO.create(), location(name)).createTable(schema);
        return location(name).toString();
    }

    @Override
    void use(String name) throws Exception {
        committer = table(name).newCommit("bench");
        identifier = 0;
    }

    @Override
    void prepare(int files) {
        messages = new ArrayList<>();
        for (int day = 0; day < Math.min(DAYS, files); day++) {
            var stats = new SimpleStats(
                row(1, day(day), LOW_NAME, 0.5, FIRST_TIME),
                row(1_000_000, day(day), HIGH_NAME, 99.5, FIRST_TIME + 900_000),
                BinaryArray.fromLongArray(new Long[] {0L, 0L, 0L, 0L, 0L}));
            var metas = new ArrayList<DataFileMeta>();
            for (int number = day; number < files; number += DAYS) {
                metas.add(DataFileMeta.forAppend(
                    fileName(), SIZE, ROWS, stats, 0, 0, 0, Collections.emptyList(), null,
                    FileSource.APPEND, null, null, null, null));
            }
            var increment = new DataIncrement(metas, Collections.emptyList(), Collections.emptyList());
            var partition = BinaryRow.singleColumn(day(day));
            messages.add(
                new CommitMessageImpl(partition, 0, -1, increment, CompactIncrement.emptyIncrement()));
        }
    }

    private static BinaryRow row(long id, String day, String name, double value, long at) {
        var row = new BinaryRow(5);
        var writer = new BinaryRowWriter(row);
        writer.writeLong(0, id);
        writer.writeString(1, BinaryString.fromString(day));
        writer.writeString(2, BinaryString.fromString(name));
        writer.writeDouble(3, value);
        writer.writeLong(4, at);
        writer.complete();
        return row;
    }

    @Override
    void commit() {
        committer.commit(++identifier, messages);
    }

    @Override
    long count(String name) {
        long found = 0;
        for (DataSplit split : table(name).newSnapshotReader().read().dataSplits()) {
            found += split.dataFiles().size();
        }
        return found;
    }
}
