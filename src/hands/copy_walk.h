/* Walks one folder, or two side by side (what is there now, and the image), for COPY_OUT: in the
   order of paths, a folder before what is in it. Never follows a link and never leaves the mounts
   it began on, whatever happens to the folders meanwhile (R38): each step is one name in a folder
   that is held open. One thread. */
#ifndef HANDS_COPY_WALK_H
#define HANDS_COPY_WALK_H

#include "hands/copy_names.h"
#include "hands/frames.h"

#include "base/err.h"

enum {
    WALK_NOW,
    WALK_BEFORE,
    WALK_SIDES
};

struct walk_node {
    enum copyout_type type;
    uint32_t mode; /* 07777 */
    uint64_t size; /* of a file */
    uint64_t inode;
    int64_t mtime_ns, ctime_ns;
    struct buf target; /* of a link; read when the change is judged */
};

/* What was found under one name. */
struct walk_found {
    enum copyout_change change;
    struct str path; /* below the root */
    const char *name;
    int dirs[WALK_SIDES];    /* the folders that hold it; -1: not on this side */
    struct walk_node *nodes; /* WALK_SIDES of them */
};

struct walk;
struct walk_hooks {
    /* Tells what was found; *stop ends the walk. */
    err (*found)(void *arg, const struct walk_found *found, bool *stop);
    /* Called for each name, and often while files are compared. */
    err (*step)(void *arg);
    void *arg;
};

struct walk_result {
    uint64_t left_out; /* folders not looked into */
    bool cut;          /* a folder had more names than can be held */
};

/* take_dirs: open folders, closed at the end; -1 where there is none. With `compare` only what
   differs is told, else everything of WALK_NOW. */
err walk_run(const int take_dirs[WALK_SIDES], bool compare, const struct walk_hooks *hooks,
             struct walk_result *out);

/* The stat of what `fd` (O_PATH will do) and `name` ("" for fd itself) are; false when there is
   nothing. *out_mount tells mounts apart. */
bool walk_look(int fd, const char *name, struct walk_node *out, uint64_t *out_mount);
/* Opens a regular file for reading without ever opening anything else: first as a bare reference,
   then, once it is known to be a file, for real. -1 and errno; ESTALE: it is no regular file. */
int walk_open_file(int dir, const char *name);
/* The same for a bare reference (O_PATH) that is at hand. */
int walk_reopen_file(int reference);

#endif
