/* sources: src/hands/tools.c src/hands/tool_bash.c src/hands/tool_read.c src/hands/tool_write.c src/hands/tool_edit.c */
/* sources: src/hands/tool_grep.c src/hands/tool_find.c src/hands/tool_ls.c src/hands/child_lines.c src/hands/collate.c */
/* sources: src/hands/edit_match.c src/hands/file_io.c src/hands/glob.c src/hands/ignore.c src/hands/image.c */
/* sources: src/hands/output.c src/hands/paths.c src/hands/process.c src/hands/text.c src/hands/threads.c */
/* sources: src/base/buf.c src/base/str.c src/base/mem.c src/base/json.c src/base/json_scan.c src/base/err.c src/base/arena.c */
/* sources: src/base/clock.c src/base/fd.c src/base/lock.c src/base/tree.c */
/* What a model may write as a tool's input: any JSON ends in a result with content, of a size that
   fits a frame, within an empty root of its own (there is nothing to run in it; what a run finds is
   printed, not kept). The first byte
   chooses the tool. */
#include "base/fd.h"
#include "base/tree.h"
#include "hands/calls.h"
#include "hands/frames.h"
#include "hands/tools.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESET_EVERY 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static char root[] = "/tmp/fuzz-tools-XXXXXX";
static int outside = -1;

/* Nobody cancels. */
static int never = -1;

bool call_cancelled(struct call *c, uint32_t *out_grace_ms)
{
    (void)c, (void)out_grace_ms;
    return false;
}

int call_cancel_fd(const struct call *c)
{
    (void)c;
    return never;
}

void call_output(struct call *c, struct str bytes)
{
    (void)c, (void)bytes;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    must(f && fputs(text, f) >= 0 && fclose(f) == 0, "a file could not be made");
}

static void fill_root(void)
{
    static const char *const folders[] = {"/workspace", "/workspace/d", "/workspace/d/.git",
                                          "/tmp"};
    static const char *const old[] = {"/workspace", "/tmp", "/root", "/etc"};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        tree_remove(old[i]);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        mkdir(folders[i], 0755);
    put("/workspace/a", "one\ntwo\nthree\ntwo\n");
    put("/workspace/crlf", "\xef\xbb\xbfone\r\ntwo\r\n");
    put("/workspace/binary", "\x89PNG\r\n\x1a\n....");
    put("/workspace/d/.gitignore", "*.o\n");
    put("/workspace/d/x.o", "x");
    must(symlink("loop", "/workspace/loop") == 0, "a link could not be made");
}

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
}

static void copy(const char *from, char *to)
{
    AUTO_BUF bytes = {0};
    if (fd_read_file(from, 1u << 20, &bytes) != 0)
        return;
    AUTO_FD fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    must(fd >= 0 && fd_write_full(fd, bytes.p, bytes.n) == 0, "a seed could not be copied");
}

/* Seeds are read when the root has changed, so they come along, at the same paths. */
static void take_seeds(const char *folder)
{
    char from[PATH_MAX], to[PATH_MAX];
    snprintf(to, sizeof to, "%s/%s/", root, folder);
    make_folders(to);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(from, sizeof from, "%s/%s", folder, e->d_name);
        snprintf(to, sizeof to, "%s/%s/%s", root, folder, e->d_name);
        copy(from, to);
    }
    if (d)
        closedir(d);
}

/* What libFuzzer wants to write to must be there as well; it prints small inputs, too. */
static void make_artifact_folder(const char *argument)
{
    static const char name[] = "-artifact_prefix=";
    char to[PATH_MAX];
    if (strncmp(argument, name, sizeof name - 1) != 0)
        return;
    snprintf(to, sizeof to, "%s/%s/", root, argument + sizeof name - 1);
    make_folders(to);
}

/* The leak check looks into /proc. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static void remove_root(void)
{
    if (fchdir(outside) == 0 && chroot(".") == 0)
        tree_remove(root);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    must(mkdtemp(root) != NULL, "there is no room in /tmp");
    for (int i = 1; i < *argc; i++) {
        make_artifact_folder((*argv)[i]);
        if ((*argv)[i][0] != '-')
            take_seeds((*argv)[i]);
    }
    outside = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) {
        perror("skipped: without root and user namespaces it has no root of its own");
        rmdir(root);
        exit(77);
    }
    must(chroot(root) == 0 && chdir("/") == 0, "a root of its own cannot be had");
    atexit(remove_root);
    never = eventfd(0, EFD_CLOEXEC);
    fill_root();
    return 0;
}

static void check_result(struct str text)
{
    AUTO_JSON o = NULL;
    must(text.n <= FRAME_MAX, "the result does not fit a frame");
    must(json_read_log(text, &o) == 0, "the result is no JSON");
    const json_t *content = json_object_get(o, "content");
    must(json_is_boolean(json_object_get(o, "isError")), "isError is missing");
    must(json_array_size(content) > 0, "there is no content");
    must(json_get_str(json_array_get(content, 0), "type").n > 0, "the content has no type");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const names[] = {"read", "write", "edit", "ls",
                                        "find", "grep",  "bash", "none"};
    static unsigned runs;
    AUTO_JSON input = NULL;
    AUTO_BUF result = {0};
    if (n == 0 || json_read((struct str){(const char *)data + 1, n - 1}, &input) != 0)
        return 0;
    AUTO_JSON call = json_pack("{s:s, s:s, s:O, s:{s:i}}", "tool", names[data[0] % 8], "cwd",
                               "/workspace", "input", input, "limits", "timeoutMs", 2000);
    tool_run(NULL, call, &result);
    check_result(buf_str(&result));
    if (++runs % RESET_EVERY == 0)
        fill_root();
    return 0;
}
