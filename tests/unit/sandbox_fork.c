/* src/sandbox/linux, fork: a copy has all the files of its model, in one moment of it, and nothing
   is left of copies that fail. */
#include "sandbox_support.h"

#define EVERYTHING                                                                                 \
    "cd / && find workspace root etc/kept home mnt "                                               \
    "-type d -printf '%p d %m %u:%g %T@\\n' -o -printf '%p %y %m %u:%g %s %T@ %n %l\\n' | "        \
    "grep -v ' d .*/log' | sort; stat -c '%a %y' /; ls /etc/shells /var/log/none /srv "            \
    "2>/dev/null; "                                                                                \
    "cat /workspace/f /workspace/sub/g; md5sum </workspace/big"

static void fill_with_everything(const struct box *b)
{
    expect(
        b,
        "echo one >f; ln f /root/f2; mkdir -p sub/deep /etc/kept; ln f sub/g; ln -s ../f sub/l; "
        "ln -s /nowhere sub/dangling; mkfifo sub/pipe; chmod 4751 f; chmod 0 sub/deep; "
        "truncate -s 200M sparse; echo end >>sparse; head -c 3m /dev/urandom >big; "
        "rm /etc/shells; rm -r /var/log; mkdir -p /var/log; : >\"$(printf 'odd\\nname')\"; "
        "touch -h -d @1000000001.123456789 sub/l; touch -d @1000000000 f sub /root sub/pipe "
        "/etc/kept; "
        "n=$(printf 'd%.0s' {1..99}); mkdir deep; cd deep; for i in {1..90}; do mkdir $n && cd $n; "
        "done 2>/dev/null; touch end; echo ok",
        "ok\n");
}

static void upper_path(char out[512], const struct box *b, const char *name)
{
    snprintf(out, 512, "%s/fs/%s/workspace/%s", b->dir, plain_root ? "plain" : "upper", name);
}

static void set_attributes(const struct box *b)
{
    char path[512];
    upper_path(path, b, "big");
    assert_int_equal(setxattr(path, "user.note", "kept\0too", 8, 0), 0);
    if (privileged) { /* version 2: owner, uid 5 of the sandbox rw, group, mask, others */
        const uint32_t acl[] = {
            2,          0x00060001, ~0u,        0x00060002, b->place.uid_base + 5, 0x00040004, ~0u,
            0x00060010, ~0u,        0x00040020, ~0u};
        assert_int_equal(setxattr(path, "system.posix_acl_access", acl, sizeof acl, 0), 0);
    }
}

static void assert_attributes(const struct box *b)
{
    char path[512], value[64];
    upper_path(path, b, "big");
    assert_int_equal(getxattr(path, "user.note", value, sizeof value), 8);
    assert_memory_equal(value, "kept\0too", 8);
    if (privileged) {
        uint32_t id;
        assert_int_equal(getxattr(path, "system.posix_acl_access", value, sizeof value), 44);
        memcpy(&id, value + 16, sizeof id);
        assert_int_equal(id, b->place.uid_base + 5);
    }
}

static struct box copy_of(struct box *from, const char *id, unsigned n)
{
    struct box b = box_of(id, "tenant_a", n);
    b.from = from;
    return b;
}

static void assert_same(const struct box *a, const struct box *b)
{
    struct ran left = run(a, EVERYTHING), right = run(b, EVERYTHING);
    struct str l = buf_str(&left.out), r = buf_str(&right.out), line, other;
    while (str_split(&l, '\n', &line)) {
        if (!str_split(&r, '\n', &other) || !str_eq(line, other))
            fail_msg("\"%.*s\" is not \"%.*s\"", STR_ARG(other), STR_ARG(line));
    }
    assert_int_equal(r.n, 0);
    assert_non_null(strstr(left.out.p, has_range ? "workspace/sub/pipe p 644 7:8"
                                                 : "workspace/sub/pipe p 644 root:root"));
    assert_null(strstr(left.out.p, "shells"));
    buf_done(&left.out);
    buf_done(&right.out);
}

static void a_copy_has_all_that_its_model_had(void **state)
{
    (void)state;
    struct box a = box_of("sess_model", "tenant_a", 40);
    struct box live = copy_of(&a, "sess_live", 41), stopped = copy_of(&a, "sess_still", 42),
               again = copy_of(&stopped, "snap_again", 43);
    boot(&a);
    fill_with_everything(&a);
    set_attributes(&a);
    if (has_range)
        expect(&a, "chown 7:8 sub/pipe; chown -h 1000:42 sub/l sub; echo ok", "ok\n");
    assert_true(make(FORK, &live, 0).live);
    assert_int_equal(status_of(&live).state, SANDBOX_STOPPED);
    expect(&a, "echo alive", "alive\n");
    assert_attributes(&live);
    must(START, &live);
    assert_same(&a, &live);
    expect(&a, "echo mine >f; echo ok", "ok\n");
    expect(&live, "cat f; [ f -ef /root/f2 ] && [ f -ef sub/g ] && echo same", "one\nsame\n");
    expect(&a, "echo one >f; chmod 4751 f; touch -d @1000000000 f; echo ok", "ok\n");
    must(STOP, &a);
    assert_false(make(FORK, &stopped, 0).live);
    assert_int_equal(make(FORK, &stopped, 0).e, E_CONFLICT);
    must(FORK, &again);
    must(DESTROY, &a);
    must(DESTROY, &stopped);
    struct box last = copy_of(&again, "sess_last", 44);
    must(FORK, &last);
    assert_attributes(&last);
    must(START, &last);
    assert_same(&live, &last);
    struct ran r = run(&last, "du -sm / -x | cut -f1"); /* holes are still holes */
    assert_in_range(strtol(r.out.p, NULL, 10), 3, 60);
    buf_done(&r.out);
    must(DESTROY, &live);
    must(DESTROY, &again);
    must(DESTROY, &last);
    assert_no_trace(&last);
}

/* In each moment n is the last line of the log, or one more. */
#define WRITER                                                                                     \
    "(i=0; while :; do i=$((i+1)); echo $i >n.new; mv n.new n; echo $i >>log; done) >/dev/null "   \
    "2>&1 </dev/null & until [ -s log ]; do :; done; echo ok"
#define JUDGE                                                                                      \
    "l=$(tail -n 1 log); [ $(wc -l <log) = $l ] && { [ $(cat n) = $l ] || [ $(cat n) = $((l+1)) "  \
    "]; "                                                                                          \
    "} && echo whole"

static void what_runs_is_copied_in_one_moment(void **state)
{
    (void)state;
    struct box a = box_of("sess_busy", "tenant_a", 45);
    boot(&a);
    expect(&a, WRITER, "ok\n");
    for (unsigned i = 0; i < 4; i++) {
        struct box b = copy_of(&a, "sess_moment", 46);
        must(FORK, &b);
        expect(&a, "l=$(wc -l <log); until [ $(wc -l <log) -gt $l ]; do :; done; echo goes on",
               "goes on\n");
        must(START, &b);
        expect(&b, JUDGE, "whole\n");
        must(DESTROY, &b);
    }
    must(DESTROY, &a);
}

static void what_a_dead_maker_left_at_rest_goes_on(void **state)
{
    (void)state;
    struct box a = box_of("sess_rests", "tenant_a", 47);
    boot(&a);
    expect(&a, WRITER, "ok\n");
    pid_t maker = fork();
    if (maker == 0) {
        struct state_run run_of_a;
        int pidfd = state_read_run(a.dir, &run_of_a) ? -1 : init_open(&run_of_a.init);
        _exit(pidfd < 0 || rest_begin(a.dir, &run_of_a, pidfd) ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(maker, &status, 0), maker);
    assert_int_equal(status, 0);
    assert_int_equal(hands_hello(a.socket, 300), E_TIMEOUT);
    must(START, &a);
    expect(&a, "l=$(wc -l <log); until [ $(wc -l <log) -gt $l ]; do :; done; echo goes on",
           "goes on\n");
    assert_int_equal(hands_hello(a.socket, 5000), 0);
    must(DESTROY, &a);
}

static void copies_that_fail_leave_nothing(void **state)
{
    (void)state;
    struct box a = box_of("sess_origin", "tenant_a", 48), b = copy_of(&a, "sess_none", 49);
    char path[256], command[800];
    assert_int_equal(make(FORK, &b, 0).e, E_NOT_FOUND);
    must(CREATE, &a); /* never ran */
    snprintf(b.spec.image, sizeof b.spec.image, "other:1");
    struct outcome o = make(FORK, &b, 0);
    assert_int_equal(o.e, E_INVALID);
    assert_non_null(strstr(o.text, "lie on the image host, not on other:1"));
    b.spec.image[0] = 0; /* the model's */
    must(FORK, &b);
    snprintf(b.spec.image, sizeof b.spec.image, "host");
    must(START, &b);
    expect(&b, "ls -A | wc -l", "0\n");
    must(DESTROY, &b);
    /* What one left that died in the middle. */
    snprintf(path, sizeof path, "%s/fs", b.dir);
    snprintf(command, sizeof command, "mkdir -p %s/upper/x && touch %s/upper/x/f %s/half-made",
             path, path, b.dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(make(START, &b, 0).e, E_NOT_FOUND);
    must(START, &a);
    must(FORK, &b);
    must(START, &b);
    expect(&b, "ls -A /x 2>/dev/null; echo none", "none\n");
    must(DESTROY, &b);
    /* Files that nobody vouches for are not overwritten. */
    snprintf(command, sizeof command, "mkdir -p %s/upper", path);
    assert_int_equal(system(command), 0);
    assert_int_equal(make(FORK, &b, 0).e, E_CONFLICT);
    must(DESTROY, &b);
    if (privileged) {
        expect(&a, "head -c 20m /dev/zero >f; echo ok", "ok\n");
        b.spec.disk_mib = 16;
        o = make(FORK, &b, 0);
        assert_int_equal(o.e, E_IO);
        assert_non_null(strstr(o.text, "No space left"));
        assert_int_equal(status_of(&b).disk_bytes, 0);
        expect(&a, "rm f; echo goes on", "goes on\n");
        b.spec.disk_mib = 32; /* from a folder to a disk, from a disk to a disk, and back */
        struct box c = copy_of(&b, "sess_third", 50), d = copy_of(&c, "sess_fourth", 51);
        c.spec.disk_mib = 48;
        expect(&a, "echo kept >f; echo ok", "ok\n");
        must(FORK, &b);
        must(START, &b);
        expect(&b, "cat f; echo more >>f; echo ok", "kept\nok\n");
        assert_true(make(FORK, &c, 0).live);
        must(FORK, &d);
        must(START, &d);
        expect(&d, "cat f", "kept\nmore\n");
        must(DESTROY, &d);
        must(DESTROY, &c);
        must(DESTROY, &b);
    }
    must(DESTROY, &a);
    assert_no_trace(&b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_has_all_that_its_model_had),
        cmocka_unit_test(what_runs_is_copied_in_one_moment),
        cmocka_unit_test(what_a_dead_maker_left_at_rest_goes_on),
        cmocka_unit_test(copies_that_fail_leave_nothing),
    };
    static const struct CMUnitTest of_v1[] = {
        cmocka_unit_test(what_runs_is_copied_in_one_moment),
        cmocka_unit_test(what_a_dead_maker_left_at_rest_goes_on),
    };
    return run_suite(&(struct suite){.name = "sandbox_fork",
                                     .tests = tests,
                                     .of_v1 = of_v1,
                                     .of_files = tests,
                                     .of_files_count = sizeof tests / sizeof *tests,
                                     .count = sizeof tests / sizeof *tests,
                                     .of_v1_count = sizeof of_v1 / sizeof *of_v1});
}
