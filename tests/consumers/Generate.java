import java.io.File;
import java.net.URL;
import java.util.Iterator;
import java.util.List;
import org.jsonschema2pojo.DefaultGenerationConfig;
import org.jsonschema2pojo.Jsonschema2Pojo;
import org.jsonschema2pojo.NoopRuleLogger;

/** Generates the classes of a JSON Schema: Generate SCHEMA FOLDER. */
class Generate {
    public static void main(String[] arguments) throws Exception {
        URL schema = new File(arguments[0]).toURI().toURL();
        Jsonschema2Pojo.generate(new DefaultGenerationConfig() {
            @Override public Iterator<URL> getSource() { return List.of(schema).iterator(); }
            @Override public File getTargetDirectory() { return new File(arguments[1]); }
            @Override public String getTargetPackage() { return "generated"; }
            @Override public String[] getFileExtensions() { return new String[] {".schema.json"}; }
            @Override public boolean isUseLongIntegers() { return true; }
            @Override public boolean isUseTitleAsClassname() { return true; }
        }, new NoopRuleLogger());
    }
}
