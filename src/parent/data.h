/* clang-format off */
/* The data directory: one service at a time (flock), its folders with their owners and modes.

   path          owner     mode   holds
   .             root      1770   group of control, sticky: control makes control.db here but cannot touch what is root's
   lock          root      0600   held while serving
   control.db    control   0600   rows (and -wal, -shm)
   logs/         control   0700   <tenant>/<session>.jsonl
   objects/      control   0700   blobs
   images/       root      0755   root file systems
   sandboxes/    root      0711   <id>/ for the provider
   volumes/      root      0700   <tenant>/<volume>/, mounted into sandboxes
   run/          root      0711   gateway sockets of hosts, remade at each start
   keys/         root      0700   vault.key and the like, 0600

   Where zones share one uid, that uid owns everything and 0700 takes the place of 1770. */
/* clang-format on */
#ifndef PARENT_DATA_H
#define PARENT_DATA_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct data_dir {
    char path[PATH_MAX]; /* real and absolute */
    int lock;            /* descriptor that holds the lock; -1 if not locked */
    bool fresh;          /* there is no database yet */
};

/* Makes what is missing, mends owners and modes. `control` owns control's part (equal to the
   caller's uid where zones are not separated). E_CONFLICT when another service holds it. */
err data_open(const char *path, uid_t control, struct data_dir *out);
/* The same for commands that work beside each other while no service runs: they share the lock, a
   service is kept out until the last of them is done. */
err data_open_shared(const char *path, uid_t control, struct data_dir *out);
/* A folder for objects outside of DATA: made if it is missing, given to control. E_INVALID for one
   that somebody else uses. out has PATH_MAX bytes: its real path. */
err data_open_objects(const char *path, uid_t control, char *out);
void data_close(struct data_dir *d);
/* Reads DATA/keys/<name>, n bytes, or makes it of random ones. */
err data_key(const struct data_dir *d, const char *name, unsigned char *out, size_t n);
/* A name for the directory short enough that socket paths beneath it fit (108 bytes): the path
   itself, or a link to it in a folder of ours under /run, XDG_RUNTIME_DIR or /tmp. */
err data_short_path(const struct data_dir *d, char *out, size_t cap);

#endif
