import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.fs.FileIO;
import org.apache.paimon.fs.Path;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.source.Split;

/** Prints the ids of the rows of tables as Paimon's own library reads them: the number of a table, and an id. */
public class Ids {
    public static void main(String[] tables) throws Exception {
        for (int at = 0; at < tables.length; at++) {
            var path = new Path(tables[at]);
            var files = FileIO.get(path, CatalogContext.create(new Options()));
            var table = FileStoreTableFactory.create(files, path);
            int number = at, id = table.rowType().getFieldIndex("id");
            var builder = table.newReadBuilder();
            for (Split split : builder.newScan().plan().splits()) {
                try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                    reader.forEachRemaining(row -> System.out.println(number + "\t" + row.getLong(id)));
                }
            }
        }
    }
}
