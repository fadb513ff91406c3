/* src/sandbox/copyout.c, copyout_reader.c and src/hands/copy_*.c: what is copied out of a folder,
   by a pi-hands of its own, whatever is in the folder and whatever pi-hands says. */
#include "copyout_support.h"
#include "hands_support.h"

#include <pthread.h>

static err copy(const char *folder, struct copyout_request r, struct notes *n,
                struct copyout_summary *out)
{
    char root[160];
    snprintf(root, sizeof root, "%s", path_in(folder));
    r.root = r.root ? r.root : root;
    struct copyout_sink sink = sink_of(n);
    return copyout_run(hands_socket, &r, &sink, out);
}

static void expect_copy(const char *folder, struct copyout_request r, const char *expected)
{
    AUTO_NOTES n = {0};
    struct copyout_summary s;
    assert_int_equal(copy(folder, r, &n, &s), 0);
    buf_add_c(&n.text, "");
    assert_string_equal(n.text.p ? n.text.p : "", expected);
    assert_int_equal(s.entries, n.entries);
    assert_false(s.truncated);
}

static void make_folder(const char *name)
{
    assert_int_equal(mkdir(path_in(name), 0755), 0);
}

static void make_link(const char *target, const char *name)
{
    assert_int_equal(symlink(target, path_in(name)), 0);
}

/* ---- what is told ---- */

static void a_tree_comes_in_order_with_its_content(void **state)
{
    (void)state;
    make_folder("tree");
    make_folder("tree/b");
    make_folder("tree/empty");
    put_file("tree/b/x", STR("inner"));
    put_file("tree/b.txt", STR("outer"));
    put_file("tree/a", STR(""));
    make_link("/etc/passwd", "tree/link");
    assert_int_equal(chmod(path_in("tree/b.txt"), 04711), 0);
    expect_copy("tree", (struct copyout_request){.contents = true},
                "=f 644 a\n=d 755 b\n=f 644 b/x = inner\n=f 4711 b.txt = outer\n=d 755 empty\n"
                "=l 777 link -> /etc/passwd\n");
    expect_copy("tree", (struct copyout_request){.files_only = true, .contents = true},
                "=f 644 a\n=f 644 b/x = inner\n=f 4711 b.txt = outer\n");
    expect_copy("tree", (struct copyout_request){.files_only = true},
                "=f 644 a\n=f 644 b/x\n=f 4711 b.txt\n");
}

static void fifos_and_sockets_are_told_and_never_opened(void **state)
{
    (void)state;
    make_folder("odd");
    assert_int_equal(mkfifo(path_in("odd/fifo"), 0600), 0);
    AUTO_FD listener = listen_at(path_in("odd/sock"));
    put_file("odd/z", STR("z"));
    assert_int_equal(chmod(path_in("odd/sock"), 0755), 0);
    expect_copy("odd", (struct copyout_request){.contents = true},
                "=o 600 fifo\n=o 755 sock\n=f 644 z = z\n");
    expect_copy("odd", (struct copyout_request){.contents = true, .only = "fifo"}, "");
}

static void names_may_hold_anything_but_slash_and_nul(void **state)
{
    (void)state;
    make_folder("names");
    put_file("names/a\nb", STR("1"));
    put_file("names/\xff\xfe", STR("2"));
    put_file("names/..x", STR("3"));
    put_file("names/\xc3\xa9", STR("4"));
    expect_copy("names", (struct copyout_request){.contents = true},
                "=f 644 ..x = 3\n=f 644 a\nb = 1\n=f 644 \xc3\xa9 = 4\n=f 644 \xff\xfe = 2\n");
}

static void each_name_of_a_file_has_its_content(void **state)
{
    (void)state;
    make_folder("hard");
    put_file("hard/a", STR("same"));
    char from[160];
    snprintf(from, sizeof from, "%s", path_in("hard/a"));
    assert_int_equal(link(from, path_in("hard/b")), 0);
    expect_copy("hard", (struct copyout_request){.contents = true},
                "=f 644 a = same\n=f 644 b = same\n");
}

static void a_root_that_is_not_there_is_empty(void **state)
{
    (void)state;
    expect_copy("nowhere", (struct copyout_request){.contents = true}, "");
    expect_copy("nowhere", (struct copyout_request){.contents = true, .only = "a"}, "");
}

static void a_root_behind_a_link_is_refused(void **state)
{
    (void)state;
    AUTO_NOTES n = {0};
    struct copyout_summary s;
    make_folder("real");
    make_folder("real/sub");
    make_link("real", "alias");
    put_file("plain", STR("x"));
    static const char *const roots[] = {"alias", "alias/sub", "plain"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(copy(roots[i], (struct copyout_request){.contents = true}, &n, &s),
                         E_CONFLICT);
        assert_string_equal(err_code(), "not_a_folder");
    }
    assert_int_equal(n.entries, 0);
}

static void one_file_can_be_asked_for(void **state)
{
    (void)state;
    make_folder("one");
    make_folder("one/sub");
    put_file("one/sub/f", STR("hello"));
    put_file("secret", STR("secret"));
    make_link("../secret", "one/out");
    make_link("sub", "one/alias");
    static const struct {
        const char *only, *expected;
    } cases[] = {
        {"sub/f", "=f 644 sub/f = hello\n"},
        {"sub", ""},
        {"out", ""},
        {"alias/f", ""},
        {"../secret", ""},
        {"no", ""},
        {"/etc/passwd", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_copy("one", (struct copyout_request){.contents = true, .only = cases[i].only},
                    cases[i].expected);
}

/* ---- limits ---- */

static void a_huge_sparse_file_comes_without_content(void **state)
{
    (void)state;
    make_folder("sparse");
    put_file("sparse/a", STR("a"));
    put_file("sparse/big", STR(""));
    assert_int_equal(truncate(path_in("sparse/big"), (off_t)1 << 42), 0);
    expect_copy("sparse", (struct copyout_request){.contents = true, .file_bytes = 1 << 20},
                "=f 644 a = a\n=f 644 big trouble 3\n");
    AUTO_NOTES n = {0};
    struct copyout_summary s;
    assert_int_equal(copy("sparse", (struct copyout_request){.contents = true}, &n, &s), 0);
    assert_true(s.truncated);
    assert_int_equal(s.entries, 1);
    assert_int_equal(s.bytes, 1);
}

static void entries_and_bytes_end_the_copying(void **state)
{
    (void)state;
    AUTO_NOTES n = {.count_only = true};
    struct copyout_summary s;
    char name[32];
    make_folder("many");
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "many/%02d", i);
        put_file(name, STR("0123456789"));
    }
    assert_int_equal(copy("many", (struct copyout_request){.contents = true, .entries = 7}, &n, &s),
                     0);
    assert_true(s.truncated);
    assert_int_equal(s.entries, 7);
    assert_int_equal(copy("many", (struct copyout_request){.contents = true, .bytes = 35}, &n, &s),
                     0);
    assert_true(s.truncated);
    assert_int_equal(s.bytes, 30);
    assert_int_equal(copy("many",
                          (struct copyout_request){.contents = true, .entries = 20, .bytes = 200},
                          &n, &s),
                     0);
    assert_false(s.truncated);
}

static void make_deep(const char *name, int depth)
{
    make_folder(name);
    AUTO_FD at = open(path_in(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < depth; i++) {
        assert_int_equal(mkdirat(at, "d", 0755), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fd_close(&at);
        at = next;
    }
    AUTO_FD file = openat(at, "bottom", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(file >= 0);
}

static void a_deep_tree_is_cut_and_counted(void **state)
{
    (void)state;
    AUTO_NOTES n = {.count_only = true};
    struct copyout_summary s;
    make_deep("deep", COPYOUT_DEPTH_MAX - 1);
    assert_int_equal(copy("deep", (struct copyout_request){.contents = true}, &n, &s), 0);
    assert_int_equal(s.entries, COPYOUT_DEPTH_MAX);
    assert_int_equal(s.left_out, 0);
    make_deep("deeper", 1000);
    assert_int_equal(copy("deeper", (struct copyout_request){.contents = true}, &n, &s), 0);
    assert_int_equal(s.entries, COPYOUT_DEPTH_MAX);
    assert_int_equal(s.left_out, 1);
}

static void a_hundred_thousand_names_come_whole(void **state)
{
    (void)state;
    AUTO_NOTES n = {.count_only = true};
    struct copyout_summary s;
    make_folder("crowd");
    AUTO_FD dir = open(path_in("crowd"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[32];
    for (int i = 0; i < 100000; i++) {
        snprintf(name, sizeof name, "%x", i * 7919);
        AUTO_FD fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
    }
    assert_int_equal(copy("crowd", (struct copyout_request){0}, &n, &s), 0);
    assert_int_equal(n.entries, 100000);
    assert_false(s.truncated);
}

static void much_content_comes_byte_for_byte(void **state)
{
    (void)state;
    AUTO_BUF content = {0};
    AUTO_NOTES n = {0};
    struct copyout_summary s;
    for (unsigned i = 0; content.n < 3000001; i++)
        buf_add(&content, &i, sizeof i);
    make_folder("much");
    put_file("much/f", buf_str(&content));
    assert_int_equal(copy("much", (struct copyout_request){.contents = true}, &n, &s), 0);
    assert_int_equal(s.bytes, content.n);
    assert_true(str_eq(buf_str(&n.now), buf_str(&content)));
    assert_true(n.content_calls > 20);
}

static void an_error_of_the_sink_ends_it(void **state)
{
    (void)state;
    AUTO_NOTES n = {.refuse = E_QUOTA};
    struct copyout_summary s;
    make_folder("ended");
    put_file("ended/a", STR("a"));
    put_file("ended/b", STR("b"));
    put_file("ended/c", STR("c"));
    assert_int_equal(copy("ended", (struct copyout_request){.contents = true}, &n, &s), E_QUOTA);
    assert_string_equal(err_text(), "enough");
    assert_int_equal(n.entries, 2);
}

/* ---- what moves meanwhile ---- */

struct mover {
    char folder[160], link[160], aside[160];
    bool stop; /* atomic */
};

/* Puts a link to another folder in the place of a folder, and back, as fast as it can. */
static void *swap_folder(void *arg)
{
    struct mover *m = arg;
    while (!__atomic_load_n(&m->stop, __ATOMIC_RELAXED)) {
        rename(m->folder, m->aside);
        rename(m->link, m->folder);
        rename(m->folder, m->link);
        rename(m->aside, m->folder);
    }
    return NULL;
}

static void a_link_swapped_in_is_never_followed(void **state)
{
    (void)state;
    make_folder("race");
    make_folder("race/d");
    make_folder("outside");
    put_file("race/d/f", STR("mine"));
    put_file("outside/f", STR("SECRET"));
    struct mover m = {0};
    snprintf(m.folder, sizeof m.folder, "%s", path_in("race/d"));
    snprintf(m.link, sizeof m.link, "%s", path_in("race-link"));
    snprintf(m.aside, sizeof m.aside, "%s", path_in("race-aside"));
    make_link(path_in("outside"), "race-link");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, swap_folder, &m), 0);
    unsigned links = 0, folders = 0;
    for (int i = 0; i < 3000 && (i < 300 || links == 0 || folders == 0); i++) {
        AUTO_NOTES n = {0};
        struct copyout_summary s;
        assert_int_equal(copy("race", (struct copyout_request){.contents = true}, &n, &s), 0);
        buf_add_c(&n.text, "");
        assert_null(n.text.p ? strstr(n.text.p, "SECRET") : NULL);
        links += n.text.p && strstr(n.text.p, "=l ");
        folders += n.text.p && strstr(n.text.p, "=d ");
    }
    __atomic_store_n(&m.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_true(links > 0 && folders > 0); /* both were really there */
}

/* Appends to the file while its content is under way. */
static err grow(void *arg, enum copyout_side side, struct str bytes)
{
    struct notes *n = arg;
    AUTO_FD fd = open(path_in("growing/f"), O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_full(fd, "more", 4), 0);
    n->bytes += bytes.n;
    (void)side;
    return 0;
}

static err keep_trouble(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    struct notes *n = arg;
    (void)before;
    n->trouble = now;
    return 0;
}

static void a_file_that_grows_meanwhile_says_so(void **state)
{
    (void)state;
    const size_t size = 40u << 20; /* far more than sockets and queues hold */
    AUTO_NOTES n = {.count_only = true};
    struct copyout_summary s;
    make_folder("growing");
    put_file("growing/f", STR(""));
    assert_int_equal(truncate(path_in("growing/f"), (off_t)size), 0);
    struct copyout_sink sink = {
        .begin = note_begin, .content = grow, .end = keep_trouble, .arg = &n};
    struct copyout_request r = {.root = path_in("growing"), .contents = true};
    assert_int_equal(copyout_run(hands_socket, &r, &sink, &s), 0);
    assert_int_equal(n.bytes, size);
    assert_int_equal(n.trouble, COPYOUT_MOVED);
}

/* ---- changes ---- */

static void put_image(const char *name, struct str content, mode_t mode)
{
    char path[320];
    snprintf(path, sizeof path, "%s%s", hands_image, path_in(name));
    for (char *p = path + strlen(hands_image) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
        *p = '/';
    }
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_full(fd, content.p, content.n), 0);
    assert_int_equal(fchmod(fd, mode), 0);
}

static void changes_are_told_against_the_image(void **state)
{
    (void)state;
    make_folder("diff");
    make_folder("diff/new");
    make_folder("diff/kept");
    put_file("diff/new/f", STR("n"));
    put_file("diff/same", STR("same"));
    put_file("diff/edited", STR("after!"));
    put_file("diff/longer", STR("much longer"));
    put_file("diff/mode", STR("m"));
    put_file("diff/was-folder", STR("f"));
    put_file("diff/kept/k", STR("k"));
    make_folder("diff/was-file");
    put_file("diff/was-file/f", STR("in"));
    put_image("diff/same", STR("same"), 0644);
    put_image("diff/edited", STR("before"), 0644);
    put_image("diff/longer", STR("short"), 0644);
    put_image("diff/mode", STR("m"), 0755);
    put_image("diff/was-folder/a", STR("a"), 0644);
    put_image("diff/was-folder/b/c", STR("c"), 0644);
    put_image("diff/was-file", STR("gone"), 0644);
    put_image("diff/gone/x", STR("x"), 0600);
    put_image("diff/kept/k", STR("k"), 0644);
    expect_copy("diff", (struct copyout_request){.contents = true, .changes = true},
                "Mf 644 edited = after!\nDd 755 gone\nDf 600 gone/x\nMf 644 longer = much longer\n"
                "Mf 644 mode = m\nAd 755 new\nAf 644 new/f = n\nMd 755 was-file\n"
                "Af 644 was-file/f = in\nMf 644 was-folder = f\nDf 644 was-folder/a\n"
                "Dd 755 was-folder/b\nDf 644 was-folder/b/c\n");
    AUTO_NOTES n = {.tell_before = true};
    struct copyout_summary s;
    assert_int_equal(
        copy("diff", (struct copyout_request){.contents = true, .changes = true, .before = true},
             &n, &s),
        0);
    assert_non_null(strstr(n.text.p, "Mf 644 edited was before = after!\n"));
    assert_non_null(strstr(n.text.p, "Df 600 gone/x was x\n"));
}

static void links_differ_by_where_they_point(void **state)
{
    (void)state;
    char path[320];
    make_folder("links");
    put_image("links/anchor", STR(""), 0644);
    put_file("links/anchor", STR(""));
    static const char *const names[] = {"links/same", "links/moved"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", hands_image, path_in(names[i]));
        assert_int_equal(symlink("old", path), 0);
    }
    make_link("old", "links/same");
    make_link("new", "links/moved");
    expect_copy("links", (struct copyout_request){.changes = true}, "Ml 777 moved -> new\n");
}

static void a_folder_that_is_gone_was_removed(void **state)
{
    (void)state;
    put_image("vanished/a", STR("a"), 0644);
    expect_copy("vanished", (struct copyout_request){.changes = true}, "Df 644 a\n");
}

static int setup(void **state)
{
    snprintf(hands_image, sizeof hands_image, "/tmp/pm-image-XXXXXX");
    assert_non_null(mkdtemp(hands_image));
    return hands_setup(state);
}

/* Folders deeper than a path can be named, too. */
static int teardown(void **state)
{
    int failed = hands_teardown(state);
    char *argv[] = {"rm", "-rf", hands_folder, hands_image, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return failed || status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_comes_in_order_with_its_content),
        cmocka_unit_test(fifos_and_sockets_are_told_and_never_opened),
        cmocka_unit_test(names_may_hold_anything_but_slash_and_nul),
        cmocka_unit_test(each_name_of_a_file_has_its_content),
        cmocka_unit_test(a_root_that_is_not_there_is_empty),
        cmocka_unit_test(a_root_behind_a_link_is_refused),
        cmocka_unit_test(one_file_can_be_asked_for),
        cmocka_unit_test(a_huge_sparse_file_comes_without_content),
        cmocka_unit_test(entries_and_bytes_end_the_copying),
        cmocka_unit_test(a_deep_tree_is_cut_and_counted),
        cmocka_unit_test(a_hundred_thousand_names_come_whole),
        cmocka_unit_test(much_content_comes_byte_for_byte),
        cmocka_unit_test(an_error_of_the_sink_ends_it),
        cmocka_unit_test(a_link_swapped_in_is_never_followed),
        cmocka_unit_test(a_file_that_grows_meanwhile_says_so),
        cmocka_unit_test(changes_are_told_against_the_image),
        cmocka_unit_test(links_differ_by_where_they_point),
        cmocka_unit_test(a_folder_that_is_gone_was_removed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
