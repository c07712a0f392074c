import java.util.Map;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

/** Serves the REST catalog with which Paimon tests its own clients. Arguments: warehouse, token. */
final class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        var config = new ConfigResponse(Map.of("prefix", "paimon"), Map.of());
        var login = new BearTokenAuthProvider(arguments[1]);
        var server = new RESTCatalogServer(arguments[0], login, config, "warehouse");
        server.start();
        System.out.println("serves on port " + server.getUrl().replaceAll("\\D", ""));
        Thread.currentThread().join();
    }
}
