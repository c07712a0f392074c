// Commits of one table format by its Java library, one answer per line of standard input.
//
//   create NAME      make a table, answer its location
//   use NAME         the table of the commits that follow
//   prepare FILES    describe so many new files, as writers do before a commit
//   commit           commit them, answer the nanoseconds of the commit alone
//   count NAME       the files that a reader finds in the table

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.UUID;

abstract class Commits {
    static final int DAYS = 4;
    static final long ROWS = 20;
    static final long SIZE = 2_000;
    static final long FIRST_TIME = 1_767_225_600_000L;
    static final String LOW_NAME = "a".repeat(12);
    static final String HIGH_NAME = "z".repeat(12);

    abstract String create(String name) throws Exception;

    abstract void use(String name) throws Exception;

    abstract void prepare(int files) throws Exception;

    abstract void commit() throws Exception;

    /** Work that follows a commit and that nobody waits for. */
    void settle() throws Exception {}

    abstract long count(String name) throws Exception;

    static String day(int number) {
        return "2026-01-0" + (number + 1);
    }

    static String fileName() {
        return "data-" + UUID.randomUUID() + "-0.parquet";
    }

    /** Answer until the input ends. A failure ends the process; standard error has its trace. */
    void answer() throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        var answers = System.out;
        // Libraries may print there.
        System.setOut(System.err);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answerTo(line.split(" ")));
            answers.flush();
        }
    }

    private Object answerTo(String[] words) throws Exception {
        switch (words[0]) {
            case "create":
                return create(words[1]);
            case "use":
                use(words[1]);
                return "";
            case "prepare":
                prepare(Integer.parseInt(words[1]));
                return "";
            case "commit":
                long start = System.nanoTime();
                commit();
                long took = System.nanoTime() - start;
                settle();
                return took;
            case "count":
                return count(words[1]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
