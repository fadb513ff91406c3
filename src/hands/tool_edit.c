/* edit: replaces texts that occur exactly once in a file, as Pi does: byte order mark and line ends
 * stay. */
#include "base/arena.h"
#include "hands/calls.h"
#include "hands/edit_match.h"
#include "hands/file_io.h"
#include "hands/paths.h"
#include "hands/text.h"
#include "hands/tools.h"

#include <errno.h>
#include <unistd.h>

#define FILE_MAX_BYTES (256u << 20)
#define DETAILS_MAX_BYTES (8u << 20) /* beyond, the host shows no diff */
#define EDITS_MAX 10000
#define BOM STR("\xef\xbb\xbf")

static bool read_edits(const struct tool_run *run, struct arena *a, struct edit **out_edits,
                       size_t *out_n, struct tool_result *out)
{
    const json_t *array = json_object_get(run->input, "edits");
    size_t n = json_array_size(array);
    if (n == 0 || n > EDITS_MAX) {
        tool_error(out, "Edit tool input is invalid. edits must contain at least one replacement.");
        return false;
    }
    struct edit *edits = arena_alloc(a, n * sizeof *edits);
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_array_get(array, i);
        edits[i] = (struct edit){json_get_str(e, "oldText"), json_get_str(e, "newText")};
        if (edits[i].old_text.p && edits[i].new_text.p)
            continue;
        tool_error(out, "Edit tool input is invalid. edits[%zu] must have oldText and newText.", i);
        return false;
    }
    *out_edits = edits;
    *out_n = n;
    return true;
}

static json_t *details(struct str old_text, struct str new_text)
{
    if (old_text.n + new_text.n > DETAILS_MAX_BYTES)
        return NULL;
    json_t *o = json_object();
    json_set_str(o, "oldText", old_text);
    json_set_str(o, "newText", new_text);
    return o;
}

static void add_error(struct str text, struct tool_result *out)
{
    out->is_error = true;
    tool_text(out, text);
}

static void report(struct str given, size_t n, struct tool_result *out)
{
    AUTO_BUF text = {0};
    buf_printf(&text, "Successfully replaced %zu block(s) in ", n);
    buf_add_str(&text, given);
    buf_add_char(&text, '.');
    tool_text(out, buf_str(&text));
}

/* The file is locked. */
static void edit_file(const struct tool_run *run, const char *path, struct str given,
                      const struct edit *edits, size_t n, struct arena *a, struct tool_result *out)
{
    AUTO_BUF raw = {0}, decoded = {0};
    if (!file_read_whole(path, run, FILE_MAX_BYTES, &raw, out))
        return;
    text_decode_all(buf_str(&raw), &decoded);
    struct str content = buf_str(&decoded);
    bool bom = str_starts(content, BOM);
    if (bom)
        content = (struct str){content.p + 3, content.n - 3};
    struct str lf = edit_to_lf(content, a), why;
    struct edit_outcome outcome;
    if (edit_apply(lf, edits, n, given, a, &outcome, &why) != 0) {
        add_error(why, out);
        return;
    }
    AUTO_BUF final = {0};
    if (bom)
        buf_add_str(&final, BOM);
    bool same = lf.p == content.p; /* no CR: the LF form is the original */
    buf_add_str(&final, same ? outcome.text : edit_apply_to_original(content, &outcome, a));
    if (tool_aborted(run, out) || !file_write_whole(path, run, buf_str(&final), out) ||
        tool_aborted(run, out))
        return;
    report(given, n, out);
    out->details = details(lf, outcome.text);
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    AUTO_ARENA a = arena_new();
    AUTO_BUF path = {0};
    struct str given;
    struct edit *edits;
    size_t n;
    if (!read_edits(run, a, &edits, &n, out) || !tool_path(run, false, &given, &path, out))
        return;
    AUTO_PATH_LOCK lock = NULL;
    int rc = path_lock(path.p, &lock);
    if (rc != 0) {
        tool_errno(out, rc, "realpath", path.p);
        return;
    }
    if (tool_aborted(run, out))
        return;
    if (access(path.p, R_OK | W_OK) != 0) {
        AUTO_BUF text = {0};
        int number = errno;
        buf_add_c(&text, "Could not edit file: ");
        buf_add_str(&text, given);
        buf_printf(&text, ". Error code: %s.", tool_errno_name(number));
        add_error(buf_str(&text), out);
        return;
    }
    edit_file(run, path.p, given, edits, n, a, out);
}

const struct tool tool_edit = {.name = "edit", .run = run};
