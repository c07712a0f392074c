import java.util.*;
import org.apache.paimon.data.*;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.*;
import org.apache.paimon.table.sink.*;
import org.apache.paimon.table.source.*;

/** Prints the rows of tables with keys as Paimon's own library reads them, before and after it compacts them. */
public class JudgeKeys {
    public static void main(String[] arguments) throws Exception {
        for (int at = 1; at < arguments.length; at++) {
            var table = FileStoreTableFactory.create(LocalFileIO.create(), new Path(arguments[at]));
            print(table, at - 1, "before");
            compact(table.copy(Map.of("write-only", "false")), arguments[0]);
            print(FileStoreTableFactory.create(LocalFileIO.create(), new Path(arguments[at])), at - 1, "after");
        }
    }

    static void print(FileStoreTable table, int number, String when) throws Exception {
        var type = table.rowType();
        int key = type.getFieldIndex("id"), value = type.getFieldIndex("value");
        var builder = table.newReadBuilder();
        for (Split split : builder.newScan().plan().splits()) {
            // The library prunes by the bucket that it computes from a key.
            var buckets = table.createRowKeyExtractor();
            try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                reader.forEachRemaining(row -> {
                    buckets.setRecord(row);
                    boolean there = buckets.bucket() == ((DataSplit) split).bucket();
                    System.out.println(String.join("\t", "row", "" + number, when, "" + there,
                        "" + InternalRow.createFieldGetter(type.getTypeAt(key), key).getFieldOrNull(row),
                        "" + InternalRow.createFieldGetter(type.getTypeAt(value), value).getFieldOrNull(row)));
                });
            }
        }
    }

    static void compact(FileStoreTable table, String folder) throws Exception {
        var write = table.newWrite("compaction").withIOManager(IOManager.create(folder));
        for (var bucket : table.newSnapshotReader().bucketEntries()) {
            write.compact(bucket.partition(), bucket.bucket(), true);
        }
        List<CommitMessage> messages = write.prepareCommit(true, 1L);
        try (var commit = table.newCommit("compaction")) {
            commit.commit(1L, messages);
        }
        write.close();
    }
}
