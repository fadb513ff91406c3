/* How long each tool takes in a running sandbox, a connection a call as the service has it, as
   multiples of fork+exec of /bin/true in the same run. Aim: read, write, edit and ls ≤ 1 ms. find
   and grep look through 200 files. Usage: sandbox_tools [ROUNDS] */
#include "sandbox_stage.h"

#include "base/id.h"

#define FILES 200

static struct stage_box box;

#define EDIT(from, to)                                                                             \
    "{\"path\":\"e.txt\",\"edits\":[{\"oldText\":\"line 7 " from "\",\"newText\":\"line 7 " to     \
    "\"}]}"

static struct {
    struct stage_series times;
    const char *tool, *input, *other; /* input of every second round, unless NULL */
} tools[] = {
    {{.name = "read (4 KB)"}, "read", "{\"path\":\"d/f7.txt\"}", NULL},
    {{.name = "write (4 KB)"}, "write", NULL, NULL},
    {{.name = "edit (4 KB)"}, "edit", EDIT("0", "1"), EDIT("1", "0")},
    {{.name = "ls (200 files)"}, "ls", "{\"path\":\"d\"}", NULL},
    {{.name = "find (200 files)"}, "find", "{\"pattern\":\"*7.txt\"}", NULL},
    {{.name = "grep (200 files, 100 matches)"}, "grep", "{\"pattern\":\"line 77 \"}", NULL},
    {{.name = "grep (200 files, no match)"}, "grep", "{\"pattern\":\"xyzzy\"}", NULL},
    {{.name = "grep (one file)"}, "grep", "{\"pattern\":\"line 77 \",\"path\":\"d/f7.txt\"}", NULL},
    {{.name = "bash true"}, "bash", "{\"command\":\"true\"}", NULL},
};

static void call(const char *tool, struct str input, bool check)
{
    char key[ID_MAX];
    static int64_t at;
    AUTO_BUF result = {0};
    struct hands_call request = {
        .key = id_new("call", ++at, key), .tool = tool, .input = input, .cwd = "/workspace"};
    stage_must(hands_call(box.agent, &request, &result) == 0, tool);
    stage_must(hands_ack(box.agent, key) == 0, "acknowledge");
    if (check && memmem(result.p, result.n, "\"isError\":false", 15) == NULL) {
        fprintf(stderr, "%s says: %.200s\n", tool, result.p);
        exit(1);
    }
}

/* {"path": …, "content": 100 lines of 40 bytes} */
static void write_input(const char *path, struct buf *out)
{
    AUTO_BUF text = {0};
    for (int i = 0; i < 100; i++)
        buf_printf(&text, "line %d %032d\n", i, i);
    AUTO_JSON o = json_pack("{s:s, s:s}", "path", path, "content", text.p);
    json_write(o, out);
}

static void prepare(void)
{
    for (int i = 0; i < FILES; i++) {
        char path[32];
        AUTO_BUF input = {0};
        snprintf(path, sizeof path, "d/f%d.txt", i);
        write_input(path, &input);
        call("write", buf_str(&input), true);
    }
    AUTO_BUF input = {0};
    write_input("e.txt", &input);
    call("write", buf_str(&input), true);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    static struct stage_series base = {.name = "fork+exec /bin/true"};
    AUTO_BUF written = {0};
    stage_open("sandbox_tools [ROUNDS]");
    stage_box(&box, 0);
    stage_must(stage_do(STAGE_CREATE, &box) == 0 && stage_do(STAGE_START, &box) == 0, "a sandbox");
    prepare();
    write_input("w.txt", &written);
    for (int round = -2; round < rounds; round++) { /* the first fills caches */
        double fork_ms = stage_fork_exec();
        for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
            const char *text = round % 2 && tools[i].other ? tools[i].other : tools[i].input;
            struct str input = text ? str_of(text) : buf_str(&written);
            double from = stage_now_ms();
            call(tools[i].tool, input, round < 2);
            if (round >= 0)
                stage_add(&tools[i].times, stage_now_ms() - from);
        }
        if (round >= 0)
            stage_add(&base, fork_ms);
    }
    double unit = stage_median(&base);
    stage_report(&base, unit);
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        stage_report(&tools[i].times, unit);
    stage_must(stage_do(STAGE_DESTROY, &box) == 0, "destroy");
    stage_close();
    return 0;
}
