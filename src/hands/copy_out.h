/* COPY_OUT: what is in a folder of the sandbox, told over the connection with content. */
#ifndef HANDS_COPY_OUT_H
#define HANDS_COPY_OUT_H

#include "base/err.h"
#include "base/json.h"

/* The image's own files, a folder of a mount nobody else can reach; -1: not given. Set by main. */
extern int copy_out_image_fd;

/* Serves the conversation that a COPY_OUT frame opened, to its COPY_END. When it could not begin,
 *out_message says why (static storage), *out_code is the code for ERROR, and nothing was sent. */
err copy_out_serve(int fd, const json_t *request, const char **out_code, const char **out_message);

#endif
