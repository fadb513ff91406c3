/* The tree that the lines of a log form, without their contents: what a wake, a fork and the API
   need to find a way from the leaf to the root. Reads the whole file once; one thread. */
#ifndef SESSION_LOG_TREE_H
#define SESSION_LOG_TREE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

enum line_kind {
    LINE_OTHER,
    LINE_HEADER,
    LINE_SETTING, /* system message: patches build on each other, so all of them stay */
    LINE_MODEL,
    LINE_THINKING,
    LINE_COMPACTION,
    LINE_EDIT /* context_edit */
};

/* Of one line of the log. Ids live in the arena. */
struct tree_line {
    int64_t offset;          /* where it begins in the file */
    const char *id, *parent; /* NULL: none, or the line is damaged */
    const char *first_kept;
    const char *answers; /* message(toolResult): its call */
    json_t *calls;       /* message(assistant): object of call ids, or NULL */
    enum line_kind kind;
    bool control;    /* one of ours, not Pi's */
    bool incomplete; /* an assistant's answer that was cut off: its calls never run */
};

struct log_tree {
    struct tree_line *lines; /* in the order of the file; a damaged one keeps its place */
    size_t n;
    /* its own */
    struct arena *a;
    size_t cap;
    int64_t bytes;
    json_t *by_id;
};

err log_tree_read(const char *logs_dir, const char *tenant, const char *session, struct arena *a,
                  struct log_tree *out);
void log_tree_done(struct log_tree *t);

/* NULL when there is none. */
struct tree_line *log_tree_find(const struct log_tree *t, const char *id);
/* The last of Pi's entries: the leaf of the active branch. */
struct tree_line *log_tree_leaf(const struct log_tree *t);
/* A parent that is not there was on a damaged line: the conversation goes on with the line before.
 */
struct tree_line *log_tree_parent(const struct log_tree *t, const struct tree_line *l);

#endif
