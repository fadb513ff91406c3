/* Copies files out of a running sandbox (COPY_OUT of hands/frames.h). pi-hands walks a folder and
   tells what is in it, entry by entry in the order of paths, with content. Nothing is held in
   memory: a slow sink makes pi-hands wait.

   R38: pi-hands follows no link, opens nothing but regular files and leaves mounts alone, whatever
   the agent's processes do to the folder meanwhile. Nothing it says is believed here: paths are
   relative, clean, unique and never beneath something that is no folder; types, modes, sizes and
   counts are what they may be and within the limits; else copyout_run fails with E_INVALID. What is
   in a path otherwise (newlines, bytes that are not UTF-8) and where links point is up to the
   agent.

   Any thread; copyout_run blocks until all is copied. */
#ifndef SANDBOX_COPYOUT_H
#define SANDBOX_COPYOUT_H

#include "base/err.h"
#include "base/str.h"
#include "hands/frames.h" /* enums copyout_type, copyout_change, copyout_trouble; limits */

#include <stdbool.h>
#include <stdint.h>

#define COPYOUT_ENTRIES_DEFAULT (2u << 20)
#define COPYOUT_BYTES_DEFAULT ((uint64_t)16 << 30)

struct copyout_node {
    enum copyout_type type;
    uint32_t mode;     /* 07777 */
    uint64_t size;     /* of a file, else 0. Sparse files count as if they were not */
    int64_t mtime_ns;  /* since 1970, may be negative; anything the agent likes */
    int64_t ctime_ns;  /* when the sandbox's kernel saw a change last */
    struct str target; /* of a link: 1 to COPYOUT_PATH_MAX bytes without NUL */
};

struct copyout_entry {
    enum copyout_change change;
    struct str path; /* below the root: "a/b"; no NUL, no empty, `.` or `..` part */
    bool utf8;       /* the path is valid UTF-8 */
    struct copyout_node now, before;
};

enum copyout_side {
    COPYOUT_NOW,
    COPYOUT_BEFORE
};

/* Each may return an error, which ends the copying and is what copyout_run returns. Strings are
   good until the callback returns. */
struct copyout_sink {
    err (*begin)(void *arg, const struct copyout_entry *entry);
    /* Only if asked for, for regular files. All of BEFORE comes before NOW; together at most the
       sizes told. May be NULL if no content was asked for. */
    err (*content)(void *arg, enum copyout_side side, struct str bytes);
    /* No trouble: exactly the sizes told have come (if content was asked for). */
    err (*end)(void *arg, enum copyout_trouble now, enum copyout_trouble before);
    /* At least every few seconds, also when there is nothing to tell. May be NULL. */
    err (*tick)(void *arg);
    void *arg;
};

struct copyout_request {
    const char *root; /* absolute and clean; none of its parts may be a link inside */
    const char *only; /* just this regular file below the root ("a/b"), or NULL */
    bool contents;
    bool files_only; /* tell nothing but regular files */
    bool changes;    /* only what differs from the image the sandbox was made from */
    bool before;     /* with changes and contents: also what was there before */
    /* 0: the defaults above. `entries` and `bytes` end the copying (`truncated`); a larger file
       than `file_bytes` (0: no such limit) is told without content. */
    uint64_t entries, bytes, file_bytes;
};

struct copyout_summary {
    uint64_t entries, bytes; /* told to the sink */
    uint64_t left_out;       /* folders not looked into: too deep, too long, unreadable */
    bool truncated;          /* a limit ended it: there is more */
};

/* `socket`: of sandboxes_start. A root that does not exist is an empty one. E_CONFLICT (code
   not_a_folder) when it is something else; E_UNAVAILABLE when the sandbox does not answer or cannot
   do this; E_CLOSED when it ended meanwhile; E_TIMEOUT when it fell silent; E_INVALID when it
   misbehaved. */
err copyout_run(const char *socket, const struct copyout_request *request,
                const struct copyout_sink *sink, struct copyout_summary *out);

/* The part of it that judges what pi-hands says. Pure; a fuzz target. */
struct copyout_reader;
struct copyout_reader *copyout_reader_new(const struct copyout_request *request,
                                          const struct copyout_sink *sink);
void copyout_reader_free(struct copyout_reader *r); /* NULL-safe */
/* Takes bytes as they arrive; *out_ended: the last frame was taken, *out_summary is filled. */
err copyout_reader_feed(struct copyout_reader *r, struct str bytes, bool *out_ended,
                        struct copyout_summary *out_summary);

#endif
