/* Reading and writing files for the tools, without ever hanging: fifos, sockets and devices are
   waited for with an eye on the call being cancelled. Any thread. */
#ifndef HANDS_FILE_IO_H
#define HANDS_FILE_IO_H

#include "base/buf.h"
#include "hands/tools.h"

#include <sys/stat.h>

/* Open for reading; -1 and errno on failure. *out_size is the regular size to stop at (what is
   appended during the read does not count), or -1 to read until the end, as for /proc and pipes. */
int file_open(const char *path, off_t *out_size);
enum file_read {
    FILE_READ_DATA,
    FILE_READ_END,
    FILE_READ_CANCELLED,
    FILE_READ_ERROR /* errno */
};
/* Reads at most n bytes; *left counts down from file_open's size. */
enum file_read file_read_some(int fd, const struct tool_run *run, off_t *left, void *p, size_t n,
                              size_t *out_n);
/* The whole file, at most max bytes; false with the tool's result (Node's error texts). E.g. EFBIG
 * beyond max. */
bool file_read_whole(const char *path, const struct tool_run *run, size_t max, struct buf *out,
                     struct tool_result *result);
/* Creates or replaces the content; false with the tool's result. */
bool file_write_whole(const char *path, const struct tool_run *run, struct str content,
                      struct tool_result *result);

#endif
