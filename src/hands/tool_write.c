/* write: creates or replaces a file, with its folders, as Pi does. */
#include "hands/calls.h"
#include "hands/file_io.h"
#include "hands/paths.h"
#include "hands/tools.h"

#include <errno.h>
#include <unistd.h>

static bool make_parent(const char *path, struct tool_result *out)
{
    const char *slash = strrchr(path, '/');
    AUTO_BUF parent = {0};
    buf_add(&parent, path, slash == path ? 1 : (size_t)(slash - path));
    int rc = path_make_folders(parent.p);
    if (rc != 0)
        tool_errno(out, rc, "mkdir", parent.p);
    return rc == 0;
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    struct str given, content;
    AUTO_BUF path = {0};
    if (!tool_path(run, false, &given, &path, out) || !tool_arg(run, "content", &content, out))
        return;
    AUTO_PATH_LOCK lock = NULL;
    int rc = path_lock(path.p, &lock);
    if (rc != 0) {
        tool_errno(out, rc, "realpath", path.p);
        return;
    }
    if (tool_aborted(run, out) || !make_parent(path.p, out) || tool_aborted(run, out) ||
        !file_write_whole(path.p, run, content, out) || tool_aborted(run, out))
        return;
    AUTO_BUF text = {0};
    buf_add_c(&text, "Successfully wrote to ");
    buf_add_str(&text, given);
    tool_text(out, buf_str(&text));
}

const struct tool tool_write = {.name = "write", .run = run};
