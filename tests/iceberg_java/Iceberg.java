// Iceberg's Java library as a process of the tests, compiled when it starts.
//
//   Iceberg.java serve PORT JDBC_URI WAREHOUSE JSON    a REST catalog on the loopback interface, with properties
//   Iceberg.java answer                                one JSON request per line, one JSON answer per line

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.MetadataColumns;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.GenericAppenderFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.encryption.EncryptedFiles;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

public class Iceberg {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Catalog> CATALOGS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        if (args[0].equals("serve")) {
            serve(Integer.parseInt(args[1]), args[2], args[3], JSON.readTree(args[4]));
            return;
        }
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static void serve(int port, String uri, String warehouse, JsonNode more) throws Exception {
        var properties = strings(more);
        properties.put("uri", uri);
        properties.put("warehouse", warehouse);
        var catalog = CatalogUtil.loadCatalog(
            "org.apache.iceberg.jdbc.JdbcCatalog", "default", properties, new Configuration());
        var context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        var server = new Server(new InetSocketAddress("127.0.0.1", port));
        server.setHandler(context);
        server.start();
        server.join();
    }

    private static Object answer(JsonNode request) {
        try {
            return switch (request.get("op").asText()) {
                case "read" -> read(request);
                case "files" -> files(request);
                default -> change(request);
            };
        } catch (Exception | LinkageError error) {
            return Map.of("error", error.toString());
        }
    }

    private static Map<String, String> strings(JsonNode object) {
        var found = new HashMap<String, String>();
        object.properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    private static Table table(JsonNode request) {
        if (request.has("metadata")) {
            FileIO io = new HadoopFileIO(new Configuration());
            if (request.has("io")) {
                var properties = strings(request.get("io"));
                io = CatalogUtil.loadFileIO(properties.get("io-impl"), properties, new Configuration());
            }
            return new BaseTable(new StaticTableOperations(request.get("metadata").asText(), io), "table");
        }
        var properties = JSON.convertValue(request.get("catalog"), Map.class);
        @SuppressWarnings("unchecked")
        var catalog = CATALOGS.computeIfAbsent(
            properties.toString(),
            key -> CatalogUtil.buildIcebergCatalog("default", (Map<String, String>) properties, new Configuration()));
        return catalog.loadTable(TableIdentifier.parse(request.get("table").asText()));
    }

    private static Expression filter(JsonNode request, Table table) {
        return request.has("filter")
            ? ExpressionParser.fromJson(request.get("filter").toString(), table.schema())
            : Expressions.alwaysTrue();
    }

    private static Object read(JsonNode request) throws Exception {
        var table = table(request);
        var columns = new ArrayList<Types.NestedField>();
        request.get("columns").forEach(name -> columns.add(switch (name.asText()) {
            case "_row_id" -> MetadataColumns.ROW_ID;
            case "_last_updated_sequence_number" -> MetadataColumns.LAST_UPDATED_SEQUENCE_NUMBER;
            default -> table.schema().findField(name.asText());
        }));
        var rows = new ArrayList<List<String>>();
        var scan = IcebergGenerics.read(table).where(filter(request, table));
        // A selection reads the columns of the filter, too; a projection can have columns beside the table's.
        var names = columns.stream().map(Types.NestedField::name).toList();
        var beside = names.stream().anyMatch(name -> name.startsWith("_"));
        try (var found = (beside ? scan.project(new Schema(columns)) : scan.select(names)).build()) {
            for (Record record : found) {
                var row = new ArrayList<String>();
                for (var name : names) {
                    var value = record.getField(name);
                    row.add(value == null ? null : value.toString());
                }
                rows.add(row);
            }
        }
        return rows;
    }

    private static Object files(JsonNode request) throws Exception {
        var table = table(request);
        var found = new ArrayList<Map<String, Object>>();
        var scan = table.newScan().includeColumnStats().filter(filter(request, table));
        try (var tasks = scan.planFiles()) {
            for (FileScanTask task : tasks) {
                DataFile file = task.file();
                var each = new LinkedHashMap<String, Object>();
                each.put("path", file.location());
                each.put("spec", file.specId());
                each.put("partition", table.specs().get(file.specId()).partitionToPath(file.partition()));
                each.put("rows", file.recordCount());
                each.put("sequence", file.dataSequenceNumber());
                each.put("file_sequence", file.fileSequenceNumber());
                each.put("first_row_id", file.firstRowId());
                each.put("deletes", task.deletes().size());
                each.put("lower", bounds(table, file.lowerBounds()));
                each.put("upper", bounds(table, file.upperBounds()));
                found.add(each);
            }
        }
        return found;
    }

    private static Map<String, String> bounds(Table table, Map<Integer, java.nio.ByteBuffer> raw) {
        var found = new TreeMap<String, String>();
        if (raw != null) {
            raw.forEach((id, bound) -> found.put(
                table.schema().findColumnName(id),
                String.valueOf((Object) Conversions.fromByteBuffer(table.schema().findType(id), bound))));
        }
        return found;
    }

    private static Object change(JsonNode request) throws Exception {
        var table = table(request);
        switch (request.get("op").asText()) {
            case "append" -> table.newAppend().appendFile(written(table, ids(request))).commit();
            case "delete" -> delete(table, new HashSet<>(ids(request)));
            case "compact" -> compact(table);
            case "rewrite-manifests" -> table.rewriteManifests().clusterBy(file -> "").commit();
            case "expire" -> table.expireSnapshots().expireOlderThan(Long.MAX_VALUE)
                .retainLast(request.get("keep").asInt()).cleanExpiredFiles(true).commit();
            case "rollback" -> table.manageSnapshots().rollbackTo(request.get("snapshot").asLong()).commit();
            case "cherrypick" ->
                table.manageSnapshots().cherrypick(request.get("snapshot").asLong()).commit();
            case "branch-at" -> table.manageSnapshots()
                .createBranch(request.get("name").asText(), request.get("snapshot").asLong()).commit();
            case "branch" -> table.manageSnapshots().createBranch(request.get("name").asText()).commit();
            case "add-column" ->
                table.updateSchema().addColumn(request.get("name").asText(), Types.StringType.get()).commit();
            case "add-field" -> table.updateSpec().addField(request.get("name").asText()).commit();
            case "property" ->
                table.updateProperties().set(request.get("name").asText(), request.get("value").asText()).commit();
            case "upgrade" -> table.updateProperties().set("format-version", "3").commit();
            default -> throw new IllegalArgumentException("unknown request");
        }
        return Map.of();
    }

    private static List<Long> ids(JsonNode request) {
        var found = new ArrayList<Long>();
        request.get("ids").forEach(id -> found.add(id.asLong()));
        return found;
    }

    private static DataFile written(Table table, List<Long> ids) throws Exception {
        var name = table.locationProvider().newDataLocation(UUID.randomUUID() + ".parquet");
        var factory = new GenericAppenderFactory(table.schema(), PartitionSpec.unpartitioned());
        var output = EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(name));
        var writer = factory.newDataWriter(output, FileFormat.PARQUET, null);
        try (writer) {
            for (Long id : ids) {
                var record = GenericRecord.create(table.schema());
                record.setField("id", id);
                writer.write(record);
            }
        }
        return writer.toDataFile();
    }

    private static void compact(Table table) throws Exception {
        var ids = new ArrayList<Long>();
        try (var found = IcebergGenerics.read(table).select("id").build()) {
            found.forEach(record -> ids.add((Long) record.get(0)));
        }
        Set<DataFile> data = new HashSet<>();
        Set<DeleteFile> deletes = new HashSet<>();
        try (var tasks = table.newScan().planFiles()) {
            tasks.forEach(task -> {
                data.add(task.file());
                deletes.addAll(task.deletes());
            });
        }
        var rewrite = table.newRewrite().validateFromSnapshot(table.currentSnapshot().snapshotId());
        data.forEach(rewrite::deleteFile);
        deletes.forEach(rewrite::deleteFile);
        rewrite.addFile(written(table, ids)).commit();
    }

    private static void delete(Table table, Set<Long> ids) throws Exception {
        var delta = table.newRowDelta();
        try (var tasks = table.newScan().planFiles()) {
            for (FileScanTask task : tasks) {
                var positions = new ArrayList<Long>();
                var only = new Schema(table.schema().findField("id"));
                var input = table.io().newInputFile(task.file().location());
                try (var records = org.apache.iceberg.parquet.Parquet.read(input).project(only)
                        .createReaderFunc(schema -> org.apache.iceberg.data.parquet.GenericParquetReaders
                            .buildReader(only, schema)).<Record>build()) {
                    long at = 0;
                    for (Record record : records) {
                        if (ids.contains(record.get(0))) {
                            positions.add(at);
                        }
                        at++;
                    }
                }
                if (!positions.isEmpty()) {
                    deletes(table, task.file(), positions).forEach(delta::addDeletes);
                }
            }
        }
        delta.commit();
    }

    private static List<DeleteFile> deletes(Table table, DataFile file, List<Long> positions) throws Exception {
        var format = TableUtil.formatVersion(table) > 2 ? FileFormat.PUFFIN : FileFormat.PARQUET;
        var factory = OutputFileFactory.builderFor(table, 1, 1).format(format).build();
        if (format == FileFormat.PUFFIN) {
            var vectors = new BaseDVFileWriter(factory, path -> null);
            try (vectors) {
                for (Long at : positions) {
                    vectors.delete(file.location(), at, table.specs().get(file.specId()), file.partition());
                }
            }
            return vectors.result().deleteFiles();
        }
        var writer = new GenericAppenderFactory(table.schema(), table.specs().get(file.specId()))
            .newPosDeleteWriter(factory.newOutputFile(), format, file.partition());
        try (writer) {
            for (Long at : positions) {
                writer.write(PositionDelete.<Record>create().set(file.location(), at, null));
            }
        }
        return List.of(writer.toDeleteFile());
    }
}
